"""The choice of a score's constants on validation nodes, federated (docs/scores.md).

For every candidate of a grid the clients' validation scores give a quantile by the four rounds of
counts that the exact rule uses; then every client says how many labels its validation nodes would
keep. The candidate with the fewest labels wins. Counts alone leave a client, and the choice does
not depend on how nodes are spread over clients.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedcover.conformal.checks import check_alpha
from fedcover.conformal.graph_scores import Diffusion, GraphScores
from fedcover.conformal.order import histogram_client, search
from fedcover.conformal.protocol import Message, Server, converse
from fedcover.conformal.scores import (
    RapsConstants,
    Scores,
    penalised,
    prediction_sets,
    ranked,
    true_scores,
)
from fedcover.conformal.targets import Target, exact_rank

REFERENCE_ALPHA = 0.1
"""One level for the choice, whatever levels are asked for later, so sets stay nested in alpha."""

RAPS_GRID: tuple[RapsConstants, ...] = (
    RapsConstants(0.0, 1),
    *(RapsConstants(nu, k) for nu in (0.001, 0.01, 0.1, 0.2, 0.5) for k in (1, 2, 3, 5)),
)
"""No penalty (plain APS) first, then the ν that RAPS's authors search, at small k_reg."""

DAPS_GRID: tuple[Diffusion, ...] = tuple(Diffusion(tenth / 10) for tenth in range(10))
"""No diffusion (the base score) first, then ever stronger."""

SNAPS_GRID: tuple[Diffusion, ...] = tuple(
    Diffusion(neighbours / 6, (total - neighbours) / 6)
    for total in range(6)
    for neighbours in range(total + 1)
)
"""Weights in sixths, no diffusion first, then ever stronger; a sixth or more is a node's own.
SNAPS's authors, without tuning, take a third each."""

Constants = TypeVar("Constants", RapsConstants, Diffusion)

ValidationNodes = tuple[ArrayLike, ArrayLike, ArrayLike]
"""Probabilities (n, C), integer labels (n,) and u (n,); n may be 0."""

ValidationScores = tuple[GraphScores, ArrayLike]
"""``graph_scores(...).at(valid)`` and the integer labels of the same nodes; n may be 0."""


def raps_client(local: ValidationNodes, query: Message) -> Message:
    """Answer for every pair of the grid: byte counts of the true scores, or kept labels at q̂."""
    probs, labels, u = local
    in_order = ranked(probs)
    pairs = zip(query["nu"], query["k_reg"], strict=True)
    return _answer((penalised(in_order, u, float(nu), int(k)) for nu, k in pairs), labels, query)


def raps_server(
    alpha: float = REFERENCE_ALPHA, grid: Sequence[RapsConstants] = RAPS_GRID
) -> Server[RapsConstants]:
    """Choose the pair with the smallest mean set size; the first of the grid among equals.

    The threshold is the plain quantile, rank ⌈(1−α)N⌉, which exists however few the nodes are:
    sizes are compared here, nothing is promised. Without any validation node: the grid's first.
    """
    return _fewest_labels(grid, alpha)


def choose_raps(
    probs: ArrayLike,
    labels: ArrayLike,
    u: ArrayLike,
    alpha: float = REFERENCE_ALPHA,
    grid: Sequence[RapsConstants] = RAPS_GRID,
) -> RapsConstants:
    """Choose RAPS's constants on validation nodes held in one place."""
    return converse(raps_server(alpha, grid), raps_client, [(probs, labels, u)])


def diffusion_client(local: ValidationScores, query: Message) -> Message:
    """Answer for every pair of weights, as ``raps_client`` does; the means are only mixed here."""
    scores, labels = local
    pairs = zip(query["neighbours"], query["similar"], strict=True)
    mixed = (scores.combined(Diffusion(float(a), float(b))) for a, b in pairs)
    return _answer(mixed, labels, query)


def diffusion_server(
    alpha: float = REFERENCE_ALPHA, grid: Sequence[Diffusion] = DAPS_GRID
) -> Server[Diffusion]:
    """Choose a graph-aware score's weights as ``raps_server`` does; with similar nodes, give it
    ``SNAPS_GRID``."""
    return _fewest_labels(grid, alpha)


def choose_diffusion(
    scores: GraphScores,
    labels: ArrayLike,
    alpha: float = REFERENCE_ALPHA,
    grid: Sequence[Diffusion] = DAPS_GRID,
) -> Diffusion:
    """Choose the weights on validation nodes held in one place."""
    return converse(diffusion_server(alpha, grid), diffusion_client, [(scores, labels)])


def _answer(candidates: Iterable[Scores], labels: ArrayLike, query: Message) -> Message:
    """A client's part of the search, for any scores: one entry of the reply a candidate."""
    if "q_hat" in query:
        pairs = zip(candidates, query["q_hat"], strict=True)
        kept = [prediction_sets(scores, q_hat).sum() for scores, q_hat in pairs]
        return {"labels_kept": np.array(kept, dtype=np.int64)}
    counts = []
    for scores, prefix in zip(candidates, query["prefix"], strict=True):
        own = {"depth": query["depth"], "prefix": prefix[None]}
        counts.append(histogram_client(true_scores(scores, labels), own)["counts"])
    return {"counts": np.stack(counts)}


def _fewest_labels(grid: Sequence[Constants], alpha: float) -> Server[Constants]:
    """The server's part; the candidates go with every query, as arrays by constants' names."""
    check_alpha(alpha)
    constants = {name: np.array([getattr(c, name) for c in grid]) for name in grid[0]._fields}
    searches = [search(lambda n: Target((1,) * len(n), exact_rank(alpha, sum(n), 0))) for _ in grid]
    queries = [next(search) for search in searches]
    q_hats: list[float] = []
    while not q_hats:  # all searches take the same number of rounds
        prefix = np.concatenate([query["prefix"] for query in queries])
        replies = yield {**constants, "depth": queries[0]["depth"], "prefix": prefix}
        if not any(reply["counts"].any() for reply in replies):
            return grid[0]
        for g, talk in enumerate(searches):
            try:
                queries[g] = talk.send([{"counts": reply["counts"][g]} for reply in replies])
            except StopIteration as stop:
                q_hats.append(stop.value[0])
    replies = yield {**constants, "q_hat": np.array(q_hats, dtype=np.float32)}
    kept = np.sum([reply["labels_kept"] for reply in replies], axis=0)
    return grid[int(np.argmin(kept))]
