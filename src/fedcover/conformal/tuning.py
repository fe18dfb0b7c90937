"""The choice of RAPS's constants on validation nodes, federated (design 5.3, 5.4).

For every (ν, k_reg) of a grid the clients' validation scores give a quantile by the same four
rounds of integer counts that the exact rule uses; then every client says how many labels its
validation nodes would keep. The pair with the fewest labels wins. Counts alone leave a client, and
the choice does not depend on how nodes are spread over clients.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_alpha
from fedcover.conformal.order import exact_rank
from fedcover.conformal.protocol import Message, Server, converse
from fedcover.conformal.quantiles import histogram_client, order_statistic_server
from fedcover.conformal.scores import RapsConstants, penalised, ranked, true_scores
from fedcover.conformal.sets import prediction_sets

REFERENCE_ALPHA = 0.1
"""One level for the choice, whatever levels are asked for later, so sets stay nested in alpha."""

RAPS_GRID: tuple[RapsConstants, ...] = (
    RapsConstants(0.0, 1),
    *(RapsConstants(nu, k) for nu in (0.001, 0.01, 0.1, 0.2, 0.5) for k in (1, 2, 3, 5)),
)
"""No penalty (plain APS) first, then the ν that RAPS's authors search, at small k_reg."""

ValidationNodes = tuple[ArrayLike, ArrayLike, ArrayLike]
"""Probabilities (n, C), integer labels (n,) and u (n,); n may be 0."""


def raps_client(local: ValidationNodes, query: Message) -> Message:
    """Answer for every pair of the grid: byte counts of the true scores, or kept labels at q̂."""
    probs, labels, u = local
    in_order = ranked(probs)
    scores = [
        penalised(in_order, u, float(nu), int(k))
        for nu, k in zip(query["nu"], query["k_reg"], strict=True)
    ]
    if "q_hat" in query:
        kept = [prediction_sets(s, q).sum() for s, q in zip(scores, query["q_hat"], strict=True)]
        return {"labels_kept": np.array(kept, dtype=np.int64)}
    counts = [
        histogram_client(true_scores(s, labels), {"depth": query["depth"], "prefix": prefix[None]})
        for s, prefix in zip(scores, query["prefix"], strict=True)
    ]
    return {"counts": np.stack([reply["counts"] for reply in counts])}


def raps_server(
    alpha: float = REFERENCE_ALPHA, grid: Sequence[RapsConstants] = RAPS_GRID
) -> Server[RapsConstants]:
    """Choose the pair with the smallest mean set size; the first of the grid among equals.

    The threshold is the plain quantile, rank ⌈(1−α)N⌉, which exists however few the nodes are:
    sizes are compared here, nothing is promised. Without any validation node: the grid's first.
    """
    check_alpha(alpha)
    constants = {
        "nu": np.array([c.nu for c in grid]),
        "k_reg": np.array([c.k_reg for c in grid]),
    }
    searches = [order_statistic_server(lambda n, _clients: exact_rank(alpha, n, 0)) for _ in grid]
    queries = [next(search) for search in searches]
    q_hats: list[float] = []
    while not q_hats:  # all searches take the same number of rounds
        prefix = np.concatenate([query["prefix"] for query in queries])
        replies = yield {**constants, "depth": queries[0]["depth"], "prefix": prefix}
        if not any(reply["counts"].any() for reply in replies):
            return grid[0]
        for g, search in enumerate(searches):
            try:
                queries[g] = search.send([{"counts": reply["counts"][g]} for reply in replies])
            except StopIteration as stop:
                q_hats.append(cast(float, stop.value[0]))
    replies = yield {**constants, "q_hat": np.array(q_hats, dtype=np.float32)}
    kept: NDArray[np.int64] = np.sum([reply["labels_kept"] for reply in replies], axis=0)
    return grid[int(np.argmin(kept))]


def choose_raps(
    probs: ArrayLike,
    labels: ArrayLike,
    u: ArrayLike,
    alpha: float = REFERENCE_ALPHA,
    grid: Sequence[RapsConstants] = RAPS_GRID,
) -> RapsConstants:
    """Choose RAPS's constants on validation nodes held in one place."""
    return converse(raps_server(alpha, grid), raps_client, [(probs, labels, u)])
