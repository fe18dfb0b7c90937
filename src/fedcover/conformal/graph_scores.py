"""Graph-aware scores: a node's scores mixed with those of its neighbours and of similar nodes.

They are a second step after any *base score* S of :mod:`fedcover.conformal.scores`. For every node
v and label y, with N(v) its neighbours and K(v) the nodes whose features are most like v's:

====== ============================================================= ==========================
DAPS   (1 − λ)·S(v, y) + λ·mean of S(u, y) over u in N(v)            H. Zargarbashi, Antonelli,
                                                                     Bojchevski, ICML 2023
SNAPS  (1 − λ − μ)·S(v, y) + λ·mean of S(u, y) over u in K(v)        Song, Huang, Jiang, Zhang,
       + μ·mean of S(u, y) over u in N(v)                            Li, Wang, NeurIPS 2024
====== ============================================================= ==========================

Federated, a client does this alone, with its own nodes and edges; the caller leaves generated nodes
out. The step knows no labels and treats all nodes alike, so calibration and test nodes stay
exchangeable (docs/guarantee.md); the weights are chosen on validation nodes
(:func:`fedcover.conformal.tuning.choose_diffusion`).

What the formulas leave open, here:

* A node without neighbours (or without similar nodes) keeps its own score in the place of the
  missing mean. The authors' programs put 0 there, which would make isolated nodes look normal.
* ``edge_index`` (2, m) holds edges from row 0 to row 1, as in PyG: a node's neighbours are the
  sources of its incoming edges. A double edge counts twice, a loop as the node itself.
* Fewer than k similar nodes: the mean runs over those there are. The SNAPS authors' program weighs
  them by the cosine (``weight``), the plain mean alike.

The label with the lowest mixed score need not be the most probable one. Sums run in float64 over
sorted edges, so the order of edges changes no bit, and a new numbering of the nodes moves a score
by rounding at most.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_positions, check_scores, refuse
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

    def at(self, nodes: NDArray[np.integer] | NDArray[np.bool_]) -> "GraphScores":
        """The same of some nodes alone (positions or a mask), their means unchanged."""
        similar = None if self.similar is None else self.similar[nodes]
        return GraphScores(self.own[nodes], self.neighbours[nodes], similar)

    def combined(self, constants: Diffusion) -> Scores:
        """The mixed scores (n, C); without any diffusion the base score, bit for bit."""
        neighbours, similar = constants
        for name, value in constants._asdict().items():
            if not 0.0 <= value <= 1.0:
                raise UsageError(f"{name} weighs {value}; a weight lies in 0 … 1.")
        if neighbours + similar > 1.0 + 1e-9:  # three thirds may exceed 1 by rounding
            raise UsageError(
                f"neighbours and similar weigh {neighbours} and {similar}; together at most 1."
            )
        if similar > 0.0 and self.similar is None:
            raise UsageError(
                f"similar weighs {similar}, but these scores were made without similar nodes; "
                "it must be 0."
            )
        mixed = (1.0 - (neighbours + similar)) * self.own.astype(np.float64)
        mixed += neighbours * self.neighbours
        if self.similar is not None:
            mixed += similar * self.similar
        return mixed.astype(np.float32)


@dataclass(frozen=True)
class GraphScore:
    """An entry of ``GRAPH_SCORES``: the base score's name, and whether it needs similar nodes."""

    base: str
    similar: bool = False


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
    own = check_scores(scores)
    if own.ndim != 2:
        raise DataError(f"scores has shape {own.shape}; it must be (nodes, labels).")
    refuse("scores", own, ~np.isfinite(own), "only finite scores have a mean")
    alike = None if similar is None else similar_mean(own, similar, weight)
    return GraphScores(own, neighbour_mean(own, edge_index), alike)


def neighbour_mean(own: Scores, edge_index: ArrayLike) -> Means:
    """Mean over every node's neighbours, label by label; the own score where it has none."""
    edges = np.asarray(edge_index)
    if edges.ndim != 2 or len(edges) != 2:
        raise DataError(f"edge_index has shape {edges.shape}; it must be (2, edges).")
    source, target = check_positions("edge_index", edges, 0, len(own))
    # One integer an edge: sorted by target, then source, whatever order the edges came in.
    target, source = np.divmod(np.sort(target * len(own) + source), max(len(own), 1))
    total = np.empty(own.shape)
    for label, column in enumerate(own.T.astype(np.float64)):
        total[:, label] = np.bincount(target, weights=column[source], minlength=len(own))
    return _mean(total, np.bincount(target, minlength=len(own)), own)


def similar_mean(own: Scores, similar: ArrayLike, weight: ArrayLike | None = None) -> Means:
    """(Weighted) mean over every node's similar nodes; the own score where it has none."""
    array = np.asarray(similar)
    if array.ndim != 2 or len(array) != len(own):
        raise DataError(f"similar has shape {array.shape}; it must be ({len(own)}, k).")
    nodes = check_positions("similar", array, -1, len(own))
    counts = np.ones(nodes.shape) if weight is None else np.asarray(weight, dtype=np.float64)
    if counts.shape != nodes.shape:
        raise DataError(f"weight has shape {counts.shape}; it must be {nodes.shape}, as similar.")
    bad = ~((counts >= 0.0) & (counts < np.inf))
    refuse("weight", counts, bad, "it must be finite, 0 or more")
    share = np.where(nodes >= 0, counts, 0.0)
    total = np.zeros(own.shape)
    for position, part in zip(nodes.T, share.T, strict=True):  # never (n, k, C) at once
        total += part[:, None] * own[position]
    return _mean(total, share.sum(axis=1), own)


def _mean(total: Means, weight: NDArray[Any], own: Scores) -> Means:
    """total / weight, node by node; the own score where there is no weight."""
    mean = own.astype(np.float64)
    np.divide(total, weight[:, None], out=mean, where=weight[:, None] > 0)
    return mean
