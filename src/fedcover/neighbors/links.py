r"""Which generated nodes become neighbours of which local ones (paper, section 5.3, steps 1 and 2).

The score of a pair is the VGAE's inner product :math:`z_u^\top z_v`; the link probability is its
sigmoid, so both order the pairs alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcover.config import GenSettings
from fedcover.federation import Plan

BLOCK = 2_000_000  # pairs scored at once


def link_plan(settings: GenSettings) -> Plan:
    """How the VGAE is trained."""
    return Plan(
        model="gcn",
        classes=2 * settings.link_latent,
        task="links",
        hidden=settings.link_hidden,
        dropout=0.0,
        lr=settings.link_lr,
        rounds=settings.link_rounds,
        local_epochs=settings.link_epochs,
    )


def choose_links(
    local: NDArray[np.float32], generated: NDArray[np.float32], share: float, rule: str
) -> NDArray[np.int64]:
    """The pairs (2, m) that become edges: generated nodes above, local nodes below.

    ``global``: of all pairs at the client the ``share`` with the largest inner products, as the
    paper writes. ``node``: of each local node's own pairs the largest ``share``, at least one.
    """
    return RULES[rule](local, generated, share)


def _over_all(
    local: NDArray[np.float32], generated: NDArray[np.float32], share: float
) -> NDArray[np.int64]:
    return top_pairs(local, generated, count_links("global", len(local), len(generated), share))


def _by_node(
    local: NDArray[np.float32], generated: NDArray[np.float32], share: float
) -> NDArray[np.int64]:
    return nearest(local, generated, count_links("node", len(local), len(generated), share))


RULES = {"node": _by_node, "global": _over_all}


def count_links(rule: str, local: int, generated: int, share: float) -> int:
    """How many links a rule makes: for each local node, or at the client altogether."""
    if rule == "node":
        return max(round(share * generated), 1)
    return round(share * local * generated)


def nearest(
    local: NDArray[np.float32],
    generated: NDArray[np.float32],
    count: int,
    block: int = BLOCK,
) -> NDArray[np.int64]:
    """Each local node's ``count`` generated nodes with the largest inner products.

    Of equal ones the first counts.
    """
    count, rows = min(count, len(generated)), max(block // max(len(generated), 1), 1)
    chosen = [
        np.argsort(-(local[start : start + rows] @ generated.T), axis=1, kind="stable")[:, :count]
        for start in range(0, len(local), rows)
    ]
    nodes = np.repeat(np.arange(len(local)), count)
    return np.stack([np.concatenate(chosen).ravel(), nodes])


def top_pairs(
    local: NDArray[np.float32], generated: NDArray[np.float32], count: int, block: int = BLOCK
) -> NDArray[np.int64]:
    """The ``count`` pairs with the largest inner products, in order (all if there are fewer).

    Of equal scores the pair with the smaller local node comes first, then the smaller generated
    node, so that the choice does not depend on the block. Memory is bounded by the block and twice
    ``count``: the pairs of a block that cannot be among the first are dropped at once.
    """
    width = len(generated)
    count = min(count, len(local) * width)
    best, codes = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    if count == 0:
        return np.empty((2, 0), dtype=np.int64)
    rows = max(block // width, 1)
    for start in range(0, len(local), rows):
        scores = (local[start : start + rows] @ generated.T).ravel()
        at_least = best[-1] if len(best) == count else -np.inf
        kept = np.flatnonzero(scores > at_least) if at_least > -np.inf else np.arange(len(scores))
        best = np.concatenate([best, scores[kept]])
        codes = np.concatenate([codes, kept + start * width])
        order = _first(best, codes, count)
        best, codes = best[order], codes[order]
    nodes, generated_nodes = np.divmod(codes, width)
    return np.stack([generated_nodes, nodes])


def _first(scores: NDArray[np.float32], codes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The positions of the ``count`` largest scores in order; ties by ascending code."""
    places = np.arange(len(scores))
    if len(scores) > count:
        smallest = np.partition(scores, len(scores) - count)[len(scores) - count]
        places = np.flatnonzero(scores >= smallest)
    order = np.lexsort((codes[places], -scores[places]))
    return places[order[:count]]
