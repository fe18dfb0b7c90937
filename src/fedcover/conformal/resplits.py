"""The same q̂, bit for bit, for many calibration/test re-splits at once (docs/guarantee.md)."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal import tdigest
from fedcover.conformal.checks import Shares, check_indices, check_scores
from fedcover.conformal.mondrian import check_group_rule
from fedcover.conformal.order import exact_rank, mixture_weights
from fedcover.conformal.quantiles import check_rule, mean_quantile, tdigest_thresholds
from fedcover.errors import DataError


def quantile_over_resplits(
    rule: str,
    true_scores: ArrayLike,
    client: ArrayLike,
    is_calibration: NDArray[np.bool_],
    alphas: Sequence[float],
    *,
    clients: int | None = None,
    shares: Shares | None = None,
) -> NDArray[np.float32]:
    """q̂ of every re-split and level: shape (R, len(alphas)).

    ``true_scores`` and ``client`` are (n,), over all calibration and test nodes; row r of
    ``is_calibration`` (R, n) marks the calibration nodes of re-split r. ``clients`` is K, the
    largest index plus one unless given; give it where the last clients may hold no node.
    ``shares`` are for the rule ``mixture``, and the same in every re-split; ``None`` means n_k + 1.
    """
    check_rule(rule, shares)
    scores, owner, mask, K = _checked(true_scores, client, is_calibration, clients)
    if rule == "exact":
        return _pooled(scores, mask, alphas, K)
    if rule == "pooled":
        return _pooled(scores, mask, alphas, 1)
    if rule == "mixture":
        return _mixture(scores, owner, mask, alphas, K, shares)
    if rule == "average":
        return _average(scores, owner, mask, alphas, K)
    return _tdigest(scores, owner, mask, alphas, K)


def group_quantiles_over_resplits(
    rule: str,
    true_scores: ArrayLike,
    client: ArrayLike,
    group: ArrayLike,
    is_calibration: NDArray[np.bool_],
    alphas: Sequence[float],
    *,
    clients: int | None = None,
    groups: int | None = None,
) -> NDArray[np.float32]:
    """q̂ of every re-split, level and group: shape (R, len(alphas), G).

    As :func:`quantile_over_resplits`, with the ``group`` (n,) of every node: its client, its label,
    or any other. Bit for bit what :func:`fedcover.conformal.group_thresholds` finds, fall-backs
    included. ``groups`` is G, the largest plus one unless given.
    """
    check_group_rule(rule)
    scores, owner, mask, K = _checked(true_scores, client, is_calibration, clients)
    G = int(np.max(group, initial=-1)) + 1 if groups is None else groups
    member = check_indices("group", group, len(scores), G)
    pooled = _pooled(scores, mask, alphas, K if rule == "exact" else 1)
    table = _OrderStatistics(scores, member, mask, G)
    n = table.counts
    holders = _holders(owner, member, mask, K, G) if rule == "exact" else np.ones_like(n)
    q_hats = np.empty((len(mask), len(alphas), G), dtype=np.float32)
    for a, alpha in enumerate(alphas):
        # The rank depends on N_g + K_g alone.
        ranks = _ranks(alpha, n + holders, 0)
        own = np.where(n > 0, table.at(np.minimum(ranks, n)), -np.inf)
        q_hats[:, a] = np.where(ranks > n, np.maximum(pooled[:, a, None], own), own)
    return q_hats


def _checked(
    true_scores: ArrayLike,
    client: ArrayLike,
    is_calibration: NDArray[np.bool_],
    clients: int | None,
) -> tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.bool_], int]:
    """Scores, owners, masks and K, with their shapes checked."""
    scores = check_scores(true_scores)
    if scores.ndim != 1:
        raise DataError(f"true_scores has shape {scores.shape}; it must be one number per node.")
    K = int(np.max(client, initial=-1)) + 1 if clients is None else clients
    owner = check_indices("client", client, len(scores), K)
    mask = np.asarray(is_calibration)
    if mask.dtype != np.bool_ or mask.ndim != 2 or mask.shape[1] != len(scores):
        raise DataError(
            f"is_calibration is {mask.dtype} of shape {mask.shape}; "
            f"it must be bool of shape (re-splits, {len(scores)})."
        )
    return scores, owner, mask, K


def _holders(
    owner: NDArray[np.intp],
    member: NDArray[np.intp],
    mask: NDArray[np.bool_],
    K: int,
    G: int,
) -> NDArray[np.int64]:
    """How many clients have a calibration score of each group: shape (R, G)."""
    # Of all pairs of a group and a client, few exist where groups are clients.
    pairs, pair = np.unique(member * K + owner, return_inverse=True)
    held = np.empty((len(mask), G), dtype=np.int64)
    for r, row in enumerate(mask):
        there = np.bincount(pair[row], minlength=len(pairs)) > 0
        held[r] = np.bincount(pairs[there] // K, minlength=G)
    return held


def _pooled(
    scores: NDArray[np.float32], mask: NDArray[np.bool_], alphas: Sequence[float], K: int
) -> NDArray[np.float32]:
    """The ⌈(1−α)(N+K)⌉-th smallest of all scores: Theorem 1, or with K = 1 the rule ``pooled``."""
    table = _OrderStatistics(scores, np.zeros(len(scores), np.intp), mask, 1)
    n = table.counts[:, 0]
    columns = [table.at(_ranks(alpha, n, K)[:, None])[:, 0] for alpha in alphas]
    return np.stack(columns, axis=1) if columns else np.empty((len(mask), 0), np.float32)


def _mixture(
    scores: NDArray[np.float32],
    owner: NDArray[np.intp],
    mask: NDArray[np.bool_],
    alphas: Sequence[float],
    K: int,
    shares: Shares | None,
) -> NDArray[np.float32]:
    """Floats find the place to within their rounding, whole numbers decide inside it."""
    order = np.argsort(scores, kind="stable")
    scores, owner = scores[order], owner[order]
    q_hats = np.full((len(mask), len(alphas)), np.inf, dtype=np.float32)
    known: dict[bytes, tuple[list[int], int, NDArray[np.float64]]] = {}  # by the clients' sizes
    for r, row in enumerate(mask):
        places = np.flatnonzero(row[order])
        held = owner[places]
        sizes = np.bincount(held, minlength=K)
        if sizes.tobytes() not in known:  # re-splits mostly keep them
            weights, scale = mixture_weights(sizes.tolist(), shares)
            parts = np.array([weight / scale for weight in weights])
            known[sizes.tobytes()] = weights, scale, parts
        weights, scale, parts = known[sizes.tobytes()]
        reached = np.cumsum(parts[held])
        # A sum of n numbers with total at most 1 is off by at most n roundings; so is each part.
        slack = 4 * (len(places) + 1) * np.finfo(np.float64).eps

        def exactly(end: int, weights: list[int] = weights, held: NDArray[np.intp] = held) -> int:
            """The whole-number weight of the scores up to and with place ``end``."""
            counts = np.bincount(held[: end + 1], minlength=K).tolist()
            return sum(weight * count for weight, count in zip(weights, counts, strict=True))

        for a, alpha in enumerate(alphas):
            target = exact_rank(alpha, scale, 0)
            low, high = np.searchsorted(reached, target / scale + np.array([-slack, slack]))
            place = bisect_left(range(len(places)), target, int(low), int(high), key=exactly)
            if place < len(places):
                q_hats[r, a] = scores[places[place]]
    return q_hats


def _average(
    scores: NDArray[np.float32],
    owner: NDArray[np.intp],
    mask: NDArray[np.bool_],
    alphas: Sequence[float],
    K: int,
) -> NDArray[np.float32]:
    table = _OrderStatistics(scores, owner, mask, K)
    present = table.counts > 0
    columns = [
        mean_quantile(table.at(np.minimum(_ranks(alpha, table.counts, 1), table.counts)), present)
        for alpha in alphas
    ]
    return np.stack(columns, axis=1) if columns else np.empty((len(mask), 0), np.float32)


def _tdigest(
    scores: NDArray[np.float32],
    owner: NDArray[np.intp],
    mask: NDArray[np.bool_],
    alphas: Sequence[float],
    K: int,
) -> NDArray[np.float32]:
    nodes_of = [np.flatnonzero(owner == k) for k in range(K)]
    q_hats = np.empty((len(mask), len(alphas)), dtype=np.float32)
    for r, row in enumerate(mask):
        replies = [tdigest.client(scores[nodes[row[nodes]]], {}) for nodes in nodes_of]
        q_hats[r] = [threshold.q_hat for threshold in tdigest_thresholds(replies, alphas)]
    return q_hats


class _OrderStatistics:
    """Order statistics of the marked scores, by row of the mask and by group.

    The scores are sorted once, by group and then by size; the marked columns of a row, read from
    left to right, are then each group's scores in order, and a rank is an index.
    """

    def __init__(
        self,
        scores: NDArray[np.float32],
        groups: NDArray[np.intp],
        mask: NDArray[np.bool_],
        n_groups: int,
    ) -> None:
        order = np.lexsort((scores, groups))
        scores, groups = scores[order], groups[order]
        self.counts = np.zeros((len(mask), n_groups), dtype=np.int64)
        parts = [np.empty(0, np.float32)]
        # Row by row: the places of all marks at once would take ten times the mask's memory.
        for row, counts in zip(mask, self.counts, strict=True):
            marked = row[order]
            parts.append(scores[marked])
            counts[:] = np.bincount(groups[marked], minlength=n_groups)
        ends = np.cumsum(self.counts).reshape(self.counts.shape)
        self._starts = ends - self.counts
        self._sorted = np.concatenate(parts)

    def at(self, ranks: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the ranks-th smallest (from 1) of every row and group; +inf above the count."""
        inside = (ranks >= 1) & (ranks <= self.counts)
        result = np.full(ranks.shape, np.inf, dtype=np.float32)
        result[inside] = self._sorted[(self._starts + ranks - 1)[inside]]
        return result


def _ranks(alpha: float, n: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    distinct, inverse = np.unique(n, return_inverse=True)
    ranks = np.array([exact_rank(alpha, int(m), clients) for m in distinct], dtype=np.int64)
    return ranks[inverse].reshape(n.shape)
