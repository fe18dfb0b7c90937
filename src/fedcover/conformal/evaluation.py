"""Coverage and size over many calibration/test re-splits at once (docs/guarantee.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_indices, check_scores, check_thresholds
from fedcover.conformal.metrics import GroupMetrics, ratio
from fedcover.conformal.scores import true_scores
from fedcover.errors import DataError

_CHUNK = 16_384  # nodes at once: bounds memory at any graph size, and keeps float32 sums exact


@dataclass(frozen=True)
class ResplitMetrics:
    """Means over re-splits; ``*_sd`` are standard deviations over re-splits (NaN for one).

    ``groups[name]`` and ``by_size`` (set size 0 … C) hold each group's mean over the re-splits in
    which it has test nodes.
    """

    n_test: float
    coverage: float
    coverage_sd: float
    set_size: float
    set_size_sd: float
    singleton_rate: float
    empty_rate: float
    singleton_hits: float
    by_size: GroupMetrics
    groups: Mapping[str, GroupMetrics]


def evaluate_resplits(
    scores: ArrayLike,
    labels: ArrayLike,
    q_hats: ArrayLike,
    is_test: NDArray[np.bool_],
    groups: Mapping[str, ArrayLike] | None = None,
    *,
    node_group: ArrayLike | None = None,
) -> ResplitMetrics:
    """Evaluate the sets S ≤ q̂ of R re-splits on their test nodes, without building them.

    ``scores`` (n, C) and ``labels`` (n,) are over all calibration and test nodes, ``q_hats`` (R,)
    the thresholds, ``is_test`` (R, n) the test nodes, ``groups`` integers per node by name. The
    class of a node is a group like any other: pass ``labels`` for it.

    Where calibration has a threshold for each group, ``q_hats`` is (R, G), and ``node_group`` (n,)
    says which one a node takes; without it there is one for each label, (R, C).
    """
    scores = check_scores(scores)
    true = true_scores(scores, labels)
    n, C = scores.shape
    thresholds = _thresholds(q_hats, labels, node_group, n, C)
    R = len(thresholds.q)
    if is_test.dtype != np.bool_ or is_test.shape != (R, n):
        raise DataError(
            f"is_test is {is_test.dtype} of shape {is_test.shape}; it must be bool {(R, n)}."
        )
    columns, membership = _membership(groups or {}, n)

    nodes, hits, kept = (np.zeros((R, membership.shape[1])) for _ in range(3))
    size_nodes, size_hits = np.zeros((R, C + 1)), np.zeros((R, C + 1))
    for start in range(0, n, _CHUNK):
        part = slice(start, start + _CHUNK)
        test = is_test[:, part]
        hit = test & (true[part] <= thresholds.of_true_labels(part))
        size = thresholds.set_sizes(scores[part], part)
        nodes += test.astype(np.float32) @ membership[part]
        hits += hit.astype(np.float32) @ membership[part]
        kept += (size * test).astype(np.float32) @ membership[part]
        size_nodes += _count_sizes(size, test, C)
        size_hits += _count_sizes(size, hit, C)

    shares = ratio(size_nodes, np.broadcast_to(nodes[:, :1], size_nodes.shape))
    by_size = _over_resplits(size_nodes, size_hits, size_nodes * np.arange(C + 1))
    overall = _over_resplits(nodes[:, :1], hits[:, :1], kept[:, :1])
    return ResplitMetrics(
        n_test=float(overall.n[0]),
        coverage=float(overall.coverage[0]),
        coverage_sd=_sd(ratio(hits[:, 0], nodes[:, 0])),
        set_size=float(overall.size[0]),
        set_size_sd=_sd(ratio(kept[:, 0], nodes[:, 0])),
        singleton_rate=float(_column_means(shares)[1]),
        empty_rate=float(_column_means(shares)[0]),
        singleton_hits=float(by_size.coverage[1]),
        by_size=by_size,
        groups={
            name: _over_resplits(nodes[:, own], hits[:, own], kept[:, own])
            for name, own in columns.items()
        },
    )


def _membership(
    groups: Mapping[str, ArrayLike], n: int
) -> tuple[dict[str, slice], NDArray[np.float32]]:
    """One column for all nodes and one for each group, so that sums by group are one product."""
    blocks, columns, first = [np.ones((n, 1), np.float32)], {}, 1
    for name, values in groups.items():
        count = int(np.max(values, initial=-1)) + 1
        member = check_indices(f"groups[{name!r}]", values, n, count)
        blocks.append((member[:, None] == np.arange(count)).astype(np.float32))
        columns[name] = slice(first, first + count)
        first += count
    return columns, np.concatenate(blocks, axis=1)


def _set_sizes(scores: NDArray[np.float32], q: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many labels of each node have S ≤ q[r]: shape (R, n).

    A score enters the sets at the first of the sorted thresholds that reaches it; counting entries
    and adding them up along the thresholds costs n·C·log R instead of n·C·R.
    """
    n, R = len(scores), len(q)
    order = np.argsort(q)
    cell = np.searchsorted(q[order], scores) * n + np.arange(n)[:, None]
    entries = np.bincount(cell.ravel(), minlength=(R + 1) * n).reshape(R + 1, n)
    sizes = np.empty((R, n), dtype=np.int64)
    sizes[order] = np.cumsum(entries[:R], axis=0)
    return sizes


def _count_sizes(size: NDArray[np.int64], chosen: NDArray[np.bool_], C: int) -> NDArray[np.int64]:
    """Count the chosen nodes by re-split and set size: shape (R, C + 1)."""
    R = len(size)
    cell = size + (C + 1) * np.arange(R)[:, None]
    return np.bincount(cell[chosen], minlength=R * (C + 1)).reshape(R, C + 1)


def _over_resplits(nodes: NDArray[Any], hits: NDArray[Any], kept: NDArray[Any]) -> GroupMetrics:
    return GroupMetrics(
        n=_column_means(nodes),
        coverage=_column_means(ratio(hits, nodes)),
        size=_column_means(ratio(kept, nodes)),
    )


def _column_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each column over the re-splits where it is a number."""
    present = ~np.isnan(values)
    return ratio(np.where(present, values, 0.0).sum(axis=0), present.sum(axis=0))


def _sd(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


@dataclass(frozen=True)
class _OneForAll:
    q: NDArray[np.float32]

    def of_true_labels(self, _part: slice) -> NDArray[np.float32]:
        return self.q[:, None]

    def set_sizes(self, scores: NDArray[np.float32], _part: slice) -> NDArray[np.int64]:
        return _set_sizes(scores, self.q)


@dataclass(frozen=True)
class _PerNode:
    q: NDArray[np.float32]
    group: NDArray[np.intp]

    def of_true_labels(self, part: slice) -> NDArray[np.float32]:
        return self.q[:, self.group[part]]

    def set_sizes(self, scores: NDArray[np.float32], part: slice) -> NDArray[np.int64]:
        group = self.group[part]
        sizes = np.empty((len(self.q), len(group)), dtype=np.int64)
        for g in np.unique(group):
            here = np.flatnonzero(group == g)
            sizes[:, here] = _set_sizes(scores[here], self.q[:, g])
        return sizes


@dataclass(frozen=True)
class _PerLabel:
    q: NDArray[np.float32]
    label: NDArray[np.intp]

    def of_true_labels(self, part: slice) -> NDArray[np.float32]:
        return self.q[:, self.label[part]]

    def set_sizes(self, scores: NDArray[np.float32], _part: slice) -> NDArray[np.int64]:
        sizes = np.zeros((len(self.q), len(scores)), dtype=np.int64)
        for column, q in zip(scores.T, self.q.T, strict=True):
            sizes += column <= q[:, None]
        return sizes


def _thresholds(
    q_hats: ArrayLike, labels: ArrayLike, node_group: ArrayLike | None, n: int, C: int
) -> _OneForAll | _PerNode | _PerLabel:
    q = check_thresholds("q_hats", q_hats)
    if node_group is not None:
        if q.ndim != 2:
            raise DataError(
                f"q_hats has shape {q.shape}; with node_group it must be (re-splits, groups)."
            )
        return _PerNode(q, check_indices("node_group", node_group, n, q.shape[1]))
    if q.ndim == 1:
        return _OneForAll(q)
    if q.ndim != 2 or q.shape[1] != C:
        raise DataError(
            f"q_hats has shape {q.shape}; it must be one threshold per re-split, or (re-splits, "
            f"{C}) for one per label."
        )
    return _PerLabel(q, check_indices("labels", labels, n, C))
