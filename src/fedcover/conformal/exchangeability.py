"""Were test nodes drawn as calibration nodes were? A permutation test inside each party.

If exchangeability holds, every way to deal a party's roles out is equally likely, whatever the
scores. Labels of test nodes are needed, so this is for judging a run, not for making sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_indices, check_scores
from fedcover.errors import DataError

PERMUTATIONS = 999
REJECTED = 0.005
_AT_ONCE = 2_000_000  # random keys that are held at the same time


@dataclass(frozen=True)
class RankSums:
    """Each party's statistic of its test scores' ranks: as dealt (K,), and permuted (B, K)."""

    observed: NDArray[np.float64]
    permuted: NDArray[np.float64]


@dataclass(frozen=True)
class PermutationTest:
    """``p_value`` over all parties; ``party`` deviates most, and ``party_p_value`` is adjusted for
    having looked at all of them (Westfall and Young's maximum, sharper than Bonferroni).

    ``by_party`` are the parties' p-values unadjusted, 1 where one lacks either kind of node.
    """

    p_value: float
    party: int
    party_p_value: float
    by_party: NDArray[np.float64]


def rejects(p_value: float, party_p_value: float) -> bool:
    """Whether exchangeability is refuted at the level 0.005, shared by the two questions."""
    return 2 * min(p_value, party_p_value) <= REJECTED


def permutation_test(
    scores: ArrayLike,
    client: ArrayLike,
    is_calibration: NDArray[np.bool_],
    rng: np.random.Generator,
    permutations: int = PERMUTATIONS,
) -> PermutationTest:
    r"""Calibration against test scores (n,) inside each party.

    The statistic is :math:`T = \sum_k z_k^2 + w_k^2`. With the ranks of party k's scores (mid-ranks
    for ties) less their mean, z_k is the standardised sum of them over test nodes, which shows
    larger or smaller scores, and w_k that of their squares, which shows scores that are spread
    otherwise (Wilcoxon's and Mood's tests; together in the way of Lepage, 1971). Then
    p = (1 + #{T* ≥ T})/(1 + B).
    """
    return pooled_test([rank_sums(scores, client, is_calibration, rng, permutations)])


def pooled_test(seeds: Sequence[RankSums]) -> PermutationTest:
    """The same over independent repetitions: the statistics of all are added up."""
    observed = np.sum([one.observed for one in seeds], axis=0)
    permuted = np.sum([one.permuted for one in seeds], axis=0)
    # Sums in another order may differ in the last bits; equal ones must count as equal.
    slack = 1 - 1e-9

    def p_value(drawn: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.float64]:
        result: NDArray[np.float64] = (1 + (drawn >= found * slack).sum(axis=0)) / (1 + len(drawn))
        return result

    return PermutationTest(
        float(p_value(permuted.sum(axis=1), observed.sum())),
        int(observed.argmax()),
        float(p_value(permuted.max(axis=1), observed.max())),
        p_value(permuted, observed),
    )


def rank_sums(
    scores: ArrayLike,
    client: ArrayLike,
    is_calibration: NDArray[np.bool_],
    rng: np.random.Generator,
    permutations: int = PERMUTATIONS,
    clients: int | None = None,
) -> RankSums:
    """What the test needs of one repetition; ``clients`` is K where the last may hold no node."""
    array, tested = check_scores(scores), ~np.asarray(is_calibration)
    if array.ndim != 1 or tested.shape != array.shape:
        raise DataError(
            f"scores has shape {array.shape} and is_calibration {tested.shape}; both must have one "
            "entry per node."
        )
    K = int(np.max(client, initial=0)) + 1 if clients is None else clients
    owner = check_indices("client", client, len(array), K)
    found = RankSums(np.zeros(K), np.zeros((permutations, K)))
    for k in range(K):
        own = np.flatnonzero(owner == k)
        chosen, n = tested[own], len(own)
        m = int(chosen.sum())
        ranks = _centred_ranks(array[own])
        if m in (0, n) or not ranks.any():
            continue
        terms = [_standardised(ranks, m), _standardised(ranks**2, m)]
        found.observed[k] = sum(term[chosen].sum() ** 2 for term in terms)
        block = max(1, _AT_ONCE // n)
        for start in range(0, permutations, block):
            keys = rng.random((min(block, permutations - start), n), dtype=np.float32)
            drawn = np.argpartition(keys, m - 1, axis=1)[:, :m]
            found.permuted[start : start + block, k] = sum(
                term[drawn].sum(axis=1) ** 2 for term in terms
            )
    return found


def _standardised(values: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    """So that the sum over m of them, drawn at random, has mean 0 and variance 1."""
    n, centred = len(values), values - values.mean()
    spread = m * (n - m) / (n * (n - 1)) * np.sum(centred**2)
    return centred / np.sqrt(spread) if spread > 1e-9 * n else np.zeros(n)


def _centred_ranks(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mid-ranks minus their mean."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2)[place]
    return ranks - (len(scores) + 1) / 2
