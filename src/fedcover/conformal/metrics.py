"""How good prediction sets are: coverage and size, overall and by group.

Everything works on boolean sets (nodes, labels) and integer labels. A mean over nothing is NaN.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_alpha, check_indices, check_labels
from fedcover.conformal.sets import Sets


@dataclass(frozen=True)
class GroupMetrics:
    """Coverage and mean set size of every group 0 … G − 1; NaN for a group without nodes.

    ``n`` counts test nodes (their mean over re-splits, there).
    """

    n: NDArray[np.float64]
    coverage: NDArray[np.float64]
    size: NDArray[np.float64]

    def worst(self) -> float:
        """Return the lowest coverage among the groups with nodes; NaN if there is none."""
        present = self.coverage[~np.isnan(self.coverage)]
        return float(present.min()) if present.size else float("nan")


def covered(sets: Sets, labels: ArrayLike) -> NDArray[np.bool_]:
    """Whether each node's set holds its true label."""
    labels = check_labels(labels, *sets.shape)
    return sets[np.arange(len(labels)), labels]


def coverage(sets: Sets, labels: ArrayLike) -> float:
    """Share of nodes whose set holds the true label (the paper's Coverage)."""
    return _mean(covered(sets, labels))


def mean_set_size(sets: Sets) -> float:
    """Mean number of labels in a set (the paper's Inefficiency)."""
    return _mean(sets.sum(axis=1))


def singleton_rate(sets: Sets) -> float:
    """Share of sets with exactly one label."""
    return _mean(sets.sum(axis=1) == 1)


def empty_rate(sets: Sets) -> float:
    """Share of sets without any label."""
    return _mean(sets.sum(axis=1) == 0)


def singleton_hits(sets: Sets, labels: ArrayLike) -> float:
    """Coverage among the sets with exactly one label: how often a single answer is right."""
    return _mean(covered(sets, labels)[sets.sum(axis=1) == 1])


def by_group(
    sets: Sets, labels: ArrayLike, groups: ArrayLike, n_groups: int | None = None
) -> GroupMetrics:
    """Coverage and size by client, class, degree bin, boundary/interior: any integer per node.

    ``n_groups`` is the largest group plus one unless given.
    """
    count = int(np.max(groups, initial=-1)) + 1 if n_groups is None else n_groups
    groups = check_indices("groups", groups, len(sets), count)
    n = np.bincount(groups, minlength=count).astype(np.float64)
    hits = np.bincount(groups, weights=covered(sets, labels), minlength=count)
    sizes = np.bincount(groups, weights=sets.sum(axis=1), minlength=count)
    return GroupMetrics(n, ratio(hits, n), ratio(sizes, n))


def size_stratified(sets: Sets, labels: ArrayLike) -> GroupMetrics:
    """Coverage by set size 0 … C; ``.worst()`` is the field's size-stratified coverage."""
    return by_group(sets, labels, sets.sum(axis=1), sets.shape[1] + 1)


def min_client_coverage(by_client: GroupMetrics) -> float:
    """Coverage of the worst client: the guarantee is not per client (docs/guarantee.md)."""
    return by_client.worst()


def class_coverage_gap(by_class: GroupMetrics, alpha: float) -> float:
    """How far the worst class falls short: (1−α) minus its coverage; negative if none does."""
    return 1.0 - check_alpha(alpha) - by_class.worst()


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """part / whole, NaN where there is no whole."""
    result = np.full(np.shape(whole), np.nan)
    np.divide(part, whole, out=result, where=whole > 0)
    return result


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if values.size else float("nan")
