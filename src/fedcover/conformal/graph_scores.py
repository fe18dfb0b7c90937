"""Graph-aware scores: a node's scores mixed with those of its neighbours and of similar nodes.

They are a second step after any *base score* S of :mod:`fedcover.conformal.scores`. For every node
v and label y, with N(v) its neighbours and K(v) the nodes whose features are most like v's:

====== ============================================================= ==========================
DAPS   (1 − λ)·S(v, y) + λ·mean of S(u, y) over u in N(v)            H. Zargarbashi, Antonelli,
                                                                     Bojchevski, ICML 2023
SNAPS  (1 − λ − μ)·S(v, y) + λ·mean of S(u, y) over u in K(v)        Song, Huang, Jiang, Zhang,
       + μ·mean of S(u, y) over u in N(v)                            Li, Wang, NeurIPS 2024
====== ============================================================= ==========================

Federated, a client does this alone: its own edges, its own nodes' features, its own nodes' scores.
No score of a neighbour elsewhere crosses, and the caller leaves generated nodes and their edges
out. The step knows no labels and treats all nodes alike, so calibration and test nodes stay
exchangeable (docs/guarantee.md); the weights are chosen on validation nodes
(:func:`fedcover.conformal.tuning.choose_diffusion`).

What the formulas leave open, here:

* A node without neighbours (or without similar nodes) keeps its own score in the place of the
  missing mean. The authors' programs put 0 there, which would make isolated nodes look normal.
* ``edge_index`` (2, m) holds edges from row 0 to row 1, as in PyG: a node's neighbours are the
  sources of its incoming edges; an undirected edge is given both ways. Every edge counts as given,
  a double one twice, a loop as the node itself.
* Fewer than k similar nodes: the mean runs over those there are. With ``weight`` it is a weighted
  mean; the SNAPS authors' program weighs by the cosine, the plain mean weighs all k alike.

A mixture of scores is not ordered as the node's own probabilities are: the label with the lowest
score need not be the most probable one. Sums run in float64 over sorted edges, so the order of
edges changes no bit, and a new numbering of the nodes moves a score by rounding at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_scores
from fedcover.conformal.scores import SCORES, Score, Scores
from fedcover.errors import DataError, UsageError

Means = NDArray[np.float64]


class Diffusion(NamedTuple):
    """How much the two means weigh: DAPS's λ is ``neighbours``; SNAPS's μ and λ are the two."""

    neighbours: float
    similar: float = 0.0


@dataclass(frozen=True)
class GraphScores:
    """A client's scores before they are mixed, three arrays (n, C); ``similar`` is None in DAPS.

    The mixture is linear in them, so they are computed once, whatever weights are tried.
    """

    own: Scores
    neighbours: Means
    similar: Means | None = None

    def at(self, nodes: NDArray[np.integer] | NDArray[np.bool_]) -> GraphScores:
        """The same of some nodes alone (positions or a mask), their means unchanged."""
        similar = None if self.similar is None else self.similar[nodes]
        return GraphScores(self.own[nodes], self.neighbours[nodes], similar)

    def combined(self, constants: Diffusion) -> Scores:
        """The mixed scores (n, C); without any diffusion the base score, bit for bit."""
        neighbours, similar = _check_constants(constants)
        mixed = (1.0 - (neighbours + similar)) * self.own.astype(np.float64)
        mixed += neighbours * self.neighbours
        if self.similar is not None:
            mixed += similar * self.similar
        elif similar > 0.0:
            raise UsageError(
                f"similar weighs {similar}, but these scores were made without similar nodes; "
                "it must be 0."
            )
        return mixed.astype(np.float32)


@dataclass(frozen=True)
class GraphScore:
    """An entry of ``GRAPH_SCORES``: the base score's name, and whether it needs similar nodes."""

    base: str
    similar: bool = False

    def __post_init__(self) -> None:
        """Refuse a base that is no score of single nodes."""
        if self.base not in SCORES:
            raise UsageError(f"base is {self.base!r}; it must be one of {', '.join(SCORES)}.")


GRAPH_SCORES: dict[str, GraphScore] = {
    "daps": GraphScore("aps"),
    "dlac": GraphScore("lac"),
    "snaps": GraphScore("aps", similar=True),
    "slac": GraphScore("lac", similar=True),
}
"""Apart from ``SCORES``: these need a graph and constants, and are no function of one node."""


def base_score(name: str) -> Score:
    """The score of single nodes that a score is, or is built on."""
    return SCORES[GRAPH_SCORES[name].base if name in GRAPH_SCORES else name]


def graph_scores(
    scores: ArrayLike,
    edge_index: ArrayLike,
    similar: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> GraphScores:
    """Take the two means of one client's base scores (n, C) of **all** its nodes.

    ``similar`` (n, k) holds positions of similar nodes, −1 where there is none; ``weight`` (n, k),
    0 or more, how much each of them counts (default: alike).
    """
    own = _check_base(scores)
    if similar is None:
        return GraphScores(own, neighbour_mean(own, edge_index))
    return GraphScores(
        own, neighbour_mean(own, edge_index), similar_mean(own, similar, weight=weight)
    )


def neighbour_mean(scores: ArrayLike, edge_index: ArrayLike) -> Means:
    """Mean over every node's neighbours, label by label; the own score where it has none."""
    own = _check_base(scores)
    source, target = _check_edges(edge_index, len(own))
    # One integer an edge: sorted by target, then source, whatever order the edges came in.
    target, source = np.divmod(np.sort(target * len(own) + source), max(len(own), 1))
    degree = np.bincount(target, minlength=len(own))
    mean = own.astype(np.float64)
    some = degree > 0
    for label in range(own.shape[1]):
        column = mean[:, label]
        total = np.bincount(target, weights=column[source], minlength=len(own))
        column[some] = total[some] / degree[some]
    return mean


def similar_mean(scores: ArrayLike, similar: ArrayLike, weight: ArrayLike | None = None) -> Means:
    """(Weighted) mean over every node's similar nodes; the own score where it has none."""
    own = _check_base(scores)
    nodes = _check_similar(similar, len(own))
    share = np.where(nodes >= 0, 1.0 if weight is None else _check_weight(weight, nodes), 0.0)
    total = np.zeros(own.shape)
    for position, counts in zip(nodes.T, share.T, strict=True):  # never (n, k, C) at once
        total += counts[:, None] * own[position]
    sums = share.sum(axis=1)
    some = sums > 0.0
    mean = own.astype(np.float64)
    mean[some] = total[some] / sums[some, None]
    return mean


def diffused(scores: ArrayLike, edge_index: ArrayLike, strength: float) -> Scores:
    """DAPS over any base score: ``strength`` is its λ."""
    return graph_scores(scores, edge_index).combined(Diffusion(strength))


def snaps(
    scores: ArrayLike,
    edge_index: ArrayLike,
    similar: ArrayLike,
    lam: float,
    mu: float,
    weight: ArrayLike | None = None,
) -> Scores:
    """SNAPS over any base score: ``lam`` weighs the similar nodes, ``mu`` the neighbours."""
    return graph_scores(scores, edge_index, similar, weight).combined(Diffusion(mu, lam))


def _check_constants(constants: Diffusion) -> Diffusion:
    for name, value in constants._asdict().items():
        if not 0.0 <= value <= 1.0:
            raise UsageError(f"{name} weighs {value}; a weight lies in 0 … 1.")
    if sum(constants) > 1.0 + 1e-9:  # three thirds may exceed 1 by rounding
        raise UsageError(
            f"neighbours and similar weigh {constants.neighbours} and {constants.similar}; "
            "together at most 1."
        )
    return constants


def _check_base(scores: ArrayLike) -> Scores:
    array = check_scores(scores)
    if array.ndim != 2:
        raise DataError(f"scores has shape {array.shape}; it must be (nodes, labels).")
    infinite = ~np.isfinite(array)
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise DataError(
            f"scores[{row}, {column}] is {array[row, column]}; only finite scores have a mean."
        )
    return array


def _check_edges(edge_index: ArrayLike, nodes: int) -> NDArray[np.int64]:
    array = np.asarray(edge_index)
    if array.ndim != 2 or len(array) != 2:
        raise DataError(f"edge_index has shape {array.shape}; it must be (2, edges).")
    return _check_positions("edge_index", array, 0, nodes)


def _check_similar(similar: ArrayLike, nodes: int) -> NDArray[np.int64]:
    array = np.asarray(similar)
    if array.ndim != 2 or len(array) != nodes:
        raise DataError(f"similar has shape {array.shape}; it must be ({nodes}, k).")
    return _check_positions("similar", array, -1, nodes)


def _check_positions(
    name: str, array: NDArray[np.generic], lowest: int, nodes: int
) -> NDArray[np.int64]:
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{name} has type {array.dtype}; it must hold integers.")
    positions = array.astype(np.int64)
    bad = (positions < lowest) | (positions >= nodes)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f"{name}[{row}, {column}] is {positions[row, column]}; "
            f"it must lie in {lowest} … {nodes - 1}."
        )
    return positions


def _check_weight(weight: ArrayLike, nodes: NDArray[np.int64]) -> Means:
    array = np.asarray(weight, dtype=np.float64)
    if array.shape != nodes.shape:
        raise DataError(f"weight has shape {array.shape}; it must be {nodes.shape}, as similar.")
    bad = ~((array >= 0.0) & np.isfinite(array))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f"weight[{row}, {column}] is {array[row, column]}; it must be finite, 0 or more."
        )
    return array
