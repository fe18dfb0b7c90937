"""How good prediction sets are: coverage and size, overall, by group, and over re-splits.

Sets are boolean (nodes, labels), labels integers; :func:`evaluate_resplits` judges the sets of many
calibration/test re-splits at once without building them. A mean over nothing is NaN.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, exp, log, log1p
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import (
    at_labels,
    check_alpha,
    check_indices,
    check_scores,
    check_table,
)
from fedcover.conformal.scores import Sets, true_scores
from fedcover.errors import DataError

_CHUNK = 16_384  # nodes at once: bounds memory at any graph size, and keeps float32 sums exact


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
        return float(np.fmin.reduce(self.coverage, initial=np.nan))

    def worst_group(self) -> int | None:
        """Return which group that is, the first of several; None if there is none."""
        known = np.flatnonzero(~np.isnan(self.coverage))
        return int(known[np.argmin(self.coverage[known])]) if len(known) else None


def covered(sets: Sets, labels: ArrayLike) -> NDArray[np.bool_]:
    """Whether each node's set holds its true label."""
    return at_labels(sets, labels)


TALLIED = ("nodes", "covered", "labels", "singletons", "empty")
"""What a party counts of its sets: nodes, those covered, labels in all sets, and so on."""


def tally(sets: Sets, labels: ArrayLike) -> NDArray[np.int64]:
    """As :data:`TALLIED` has it; a label below 0 is not known, and no set covers it."""
    sizes, labels = sets.sum(axis=1), np.asarray(labels)
    held = covered(sets[labels >= 0], labels[labels >= 0])
    return np.array([len(sets), held.sum(), sizes.sum(), (sizes == 1).sum(), (sizes == 0).sum()])


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
    return GroupMetrics(n, _ratio(hits, n), _ratio(sizes, n))


def size_stratified(sets: Sets, labels: ArrayLike) -> GroupMetrics:
    """Coverage by set size 0 … C; ``.worst()`` is the field's size-stratified coverage."""
    return by_group(sets, labels, sets.sum(axis=1), sets.shape[1] + 1)


def class_coverage_gap(by_class: GroupMetrics, alpha: float) -> float:
    """How far the worst class falls short: (1−α) minus its coverage; negative if none does."""
    return 1.0 - check_alpha(alpha) - by_class.worst()


def coverage_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval for a coverage, of ``hits`` covered nodes among n.

    Its ends are the p with P(Bin(n, p) ≥ hits) and P(Bin(n, p) ≤ hits) equal to (1 − level)/2; it
    is 0 … 1 without nodes.
    """
    if not (0 <= hits <= n and 0.0 < level < 1.0):
        raise DataError(
            f"hits is {hits}, n is {n} and level is {level}; hits must lie in 0 … n, and level "
            "strictly between 0 and 1."
        )
    tail = (1.0 - level) / 2.0
    low = _root(lambda p: tail - _at_most(n - hits, n, 1.0 - p)) if hits else 0.0
    high = _root(lambda p: _at_most(hits, n, p) - tail) if hits < n else 1.0
    return low, high


def _at_most(k: int, n: int, p: float) -> float:
    """P(Bin(n, p) ≤ k) for 0 < p < 1."""
    of = np.arange(k + 1)
    steps = np.log((n - of[1:] + 1) / of[1:])
    logs = np.concatenate([[0.0], np.cumsum(steps)]) + of * log(p) + (n - of) * log1p(-p)
    largest = float(logs.max())
    return exp(largest) * float(np.exp(logs - largest).sum())


def _root(falling: Callable[[float], float]) -> float:
    """Where a function on 0 … 1 that falls crosses zero."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0.0 else (low, middle)
    return (low + high) / 2


def worst_slab_coverage(
    features: ArrayLike,
    covered: ArrayLike,
    rng: np.random.Generator,
    delta: float = 0.1,
    directions: int = 1000,
) -> float:
    """Coverage in the worst slab {a ≤ v·x ≤ b} that holds a share ``delta`` of the nodes or more.

    Romano, Sesia and Candès (2020): of random unit vectors v and all ends a, b, the slab that is
    covered least is found on one half of the nodes (n, d), and its coverage is that of the other
    half, so that the minimum is not biased. NaN where that half has no node in it.
    """
    x, hit = check_table("features", features), np.asarray(covered, dtype=np.float64)
    if hit.shape != (len(x),) or not 0.0 < delta <= 1.0:
        raise DataError(
            f"covered has shape {hit.shape} and delta is {delta}; there must be one entry for each "
            f"of the {len(x)} nodes, and delta in 0 … 1, above 0."
        )
    shuffled = rng.permutation(len(x))
    search, judge = shuffled[: len(x) // 2], shuffled[len(x) // 2 :]
    least = max(1, ceil(delta * len(search)))
    if len(search) < least:
        return float("nan")
    worst, slab = np.inf, None
    for v in rng.standard_normal((directions, x.shape[1])):
        v /= np.linalg.norm(v)
        along = x[search] @ v
        order = np.argsort(along, kind="stable")
        mean, start, end = _least_mean(hit[search][order], least)
        if mean < worst:
            worst, slab = mean, (v, along[order[start]], along[order[end - 1]])
    assert slab is not None
    v, low, high = slab
    along = x[judge] @ v
    return _mean(hit[judge][(along >= low) & (along <= high)])


def _least_mean(values: NDArray[np.float64], least: int) -> tuple[float, int, int]:
    """The lowest mean of a run of at least so many neighbours, and where it starts and ends.

    A run of twice the least length or more has a part that is no better, so lengths stop there; a
    coarse grid of them loses little.
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    best = (np.inf, 0, len(values))
    for length in np.unique(np.linspace(least, min(2 * least, len(values)), 8).astype(int)):
        means = (sums[length:] - sums[:-length]) / length
        at = int(np.argmin(means))
        if means[at] < best[0]:
            best = (float(means[at]), at, at + int(length))
    return best


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if values.size else float("nan")


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """part / whole, NaN where there is no whole."""
    result = np.full(np.shape(whole), np.nan)
    np.divide(part, whole, out=result, where=whole > 0)
    return result


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
    weights: ArrayLike | None = None,
) -> ResplitMetrics:
    """Evaluate the sets S ≤ q̂ of R re-splits on their test nodes, without building them.

    ``scores`` (n, C) and ``labels`` (n,) are over all calibration and test nodes, ``is_test``
    (R, n) marks the test nodes, ``groups`` are integers per node by name (pass ``labels`` for the
    class). ``q_hats`` is one threshold per re-split, (R,); (R, G) where groups have their own, and
    ``node_group`` (n,) says which one a node takes; (R, C) for one per label. ``weights`` (n,) say
    how much a node counts in the overall means; inside a group all nodes count the same.
    """
    scores = check_scores(scores)
    true = true_scores(scores, labels)
    n, C = scores.shape
    q, column, per_label = _thresholds(q_hats, labels, node_group, n, C)
    R = len(q)
    if is_test.dtype != np.bool_ or is_test.shape != (R, n):
        raise DataError(
            f"is_test is {is_test.dtype} of shape {is_test.shape}; it must be bool {(R, n)}."
        )
    weight = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    columns, membership = _membership(groups or {}, weight)
    nodes, hits, kept = np.zeros((3, R, membership.shape[1]))
    size_nodes, size_hits = np.zeros((2, R, C + 1))
    for start in range(0, n, _CHUNK):
        part = slice(start, start + _CHUNK)
        test = is_test[:, part]
        hit = test & (true[part] <= q[:, column[part]])
        size = _set_sizes(scores[part], q, None if per_label else column[part])
        nodes += test.astype(membership.dtype) @ membership[part]
        hits += hit.astype(membership.dtype) @ membership[part]
        kept += (size * test).astype(membership.dtype) @ membership[part]
        size_nodes += _count_sizes(size, test, C, weight[part])
        size_hits += _count_sizes(size, hit, C, weight[part])

    shares = _column_means(_ratio(size_nodes, np.broadcast_to(nodes[:, :1], size_nodes.shape)))
    by_size = _over_resplits(size_nodes, size_hits, size_nodes * np.arange(C + 1))
    overall = _over_resplits(nodes[:, :1], hits[:, :1], kept[:, :1])
    return ResplitMetrics(
        n_test=float(is_test.sum(axis=1).mean()),
        coverage=float(overall.coverage[0]),
        coverage_sd=_sd(_ratio(hits[:, 0], nodes[:, 0])),
        set_size=float(overall.size[0]),
        set_size_sd=_sd(_ratio(kept[:, 0], nodes[:, 0])),
        singleton_rate=float(shares[1]),
        empty_rate=float(shares[0]),
        singleton_hits=float(by_size.coverage[1]),
        by_size=by_size,
        groups={
            name: _over_resplits(nodes[:, own], hits[:, own], kept[:, own])
            for name, own in columns.items()
        },
    )


def _membership(
    groups: Mapping[str, ArrayLike], weight: NDArray[np.float64]
) -> tuple[dict[str, slice], NDArray[np.floating]]:
    """One column of all nodes' weights and one for each group: sums by group are one product."""
    # Sums of ones are exact in single precision, and faster; those of weights are not.
    n, kind = len(weight), np.float32 if (weight == 1).all() else np.float64
    blocks, columns, first = [weight[:, None].astype(kind)], {}, 1
    for name, values in groups.items():
        count = int(np.max(values, initial=-1)) + 1
        member = check_indices(f"groups[{name!r}]", values, n, count)
        blocks.append((member[:, None] == np.arange(count)).astype(kind))
        columns[name] = slice(first, first + count)
        first += count
    return columns, np.concatenate(blocks, axis=1)


def _thresholds(
    q_hats: ArrayLike, labels: ArrayLike, node_group: ArrayLike | None, n: int, C: int
) -> tuple[NDArray[np.float32], NDArray[np.intp], bool]:
    """Thresholds (R, columns), the column of each node's true label, whether columns are labels."""
    q = check_scores(q_hats, "q_hats")
    if node_group is not None:
        if q.ndim == 2:
            return q, check_indices("node_group", node_group, n, q.shape[1]), False
        must = "with node_group it must be (re-splits, groups)"
    elif q.ndim == 1:
        return q[:, None], np.zeros(n, np.intp), False
    elif q.ndim == 2 and q.shape[1] == C:
        return q, check_indices("labels", labels, n, C), True
    else:
        must = f"it must be one threshold per re-split, or (re-splits, {C}) for one per label"
    raise DataError(f"q_hats has shape {q.shape}; {must}.")


def _set_sizes(
    scores: NDArray[np.float32], q: NDArray[np.float32], group: NDArray[np.intp] | None
) -> NDArray[np.int64]:
    """How many labels of each node have S ≤ q̂, (R, n): a node takes its group's column of q.

    Without groups, there is a column for each label. With them, a score enters the sets at the
    first of the group's sorted thresholds that reaches it: n·C·log R instead of n·C·R.
    """
    sizes = np.zeros((len(q), len(scores)), dtype=np.int64)
    if group is None:
        for column, own in zip(scores.T, q.T, strict=True):
            sizes += column <= own[:, None]
        return sizes
    for g in np.unique(group):
        here = np.flatnonzero(group == g)
        order, n = np.argsort(q[:, g]), len(here)
        cell = np.searchsorted(q[order, g], scores[here]) * n + np.arange(n)[:, None]
        entries = np.bincount(cell.ravel(), minlength=(len(q) + 1) * n).reshape(-1, n)
        sizes[np.ix_(order, here)] = np.cumsum(entries[:-1], axis=0)
    return sizes


def _count_sizes(
    size: NDArray[np.int64], chosen: NDArray[np.bool_], C: int, weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What the chosen nodes weigh, by re-split and set size: shape (R, C + 1)."""
    R = len(size)
    cell = size + (C + 1) * np.arange(R)[:, None]
    weighed = np.broadcast_to(weight, cell.shape)[chosen]
    counted = np.bincount(cell[chosen], weighed, minlength=R * (C + 1))
    return counted.reshape(R, C + 1).astype(np.float64, copy=False)


def _over_resplits(nodes: NDArray[Any], hits: NDArray[Any], kept: NDArray[Any]) -> GroupMetrics:
    parts = nodes, _ratio(hits, nodes), _ratio(kept, nodes)
    return GroupMetrics(*map(_column_means, parts))


def _column_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each column over the re-splits where it is a number."""
    present = ~np.isnan(values)
    return _ratio(np.where(present, values, 0.0).sum(axis=0), present.sum(axis=0))


def _sd(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
