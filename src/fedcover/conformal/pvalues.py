"""Conformal p-values: for every label, the smallest α at which it is no longer in the set.

A rule takes q̂ = the smallest calibration score with H(q̂) ≥ 1 − α + e, where H(q) = Σ_k v_k·#{scores
of client k ≤ q}. A label with score s is in the set exactly if no smaller calibration score reaches
that, H(s−) < 1 − α + e with H(s−) the weight strictly below s. So p = 1 + e − H(s−), at most 1, and
the set at level 1 − α is {p > α}. The rule ``exact`` is v_k = p_k/n_k and e = max v_k, or
v_k = p_k/(n_k + 1) and e = 0 (:func:`~fedcover.conformal.targets.share_weights`); the paper's rank
⌈(1−α)(N+K)⌉ is v = 1/(N+K) and e = 0; for one client p is (#{scores ≥ s} + 1)/(n + 1), the p-value
of every textbook.

Weights are whole numbers over a common scale, so each p is one correctly rounded division: p > α
holds in floats where it holds in fractions, for α as it is written: 0.1, not 1 − 0.9.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import Shares, check_scores
from fedcover.conformal.targets import share_weights
from fedcover.errors import UsageError

Weights = tuple[tuple[int, ...], int, int]
"""Whole numbers w_k, the scale s and the extra x: v_k = w_k/s and e = x/s."""


def _same(n: Sequence[int], plus: int) -> Weights:
    return (1,) * len(n), sum(n) + plus, 0


WEIGHTS: dict[str, Callable[[Sequence[int], Shares | None], Weights]] = {
    "exact": share_weights,
    "theorem1": lambda n, _shares: _same(n, len(n)),
    "pooled": lambda n, _shares: _same(n, 1),
}
"""Of the rules that have p-values, from the clients' numbers of scores and their shares."""


def rule_weights(rule: str, n: Sequence[int], shares: Shares | None = None) -> Weights:
    """The weights of a rule for n_k calibration scores at client k."""
    if rule not in WEIGHTS:
        known = ", ".join(WEIGHTS)
        raise UsageError(f"rule is {rule!r}, which has no p-values; it must be one of {known}.")
    return WEIGHTS[rule](n, shares)


def p_values(
    scores: ArrayLike, calibration: Sequence[ArrayLike], weights: Weights
) -> NDArray[np.float64]:
    """The p-value of every score, in their shape: {p > α} is the set S ≤ q̂ of every level.

    ``calibration`` holds each client's calibration scores, ``weights`` what :func:`rule_weights`
    gives for their numbers, or another rule's whole numbers.
    """
    own, scale, extra = weights
    if len(own) != len(calibration):
        raise UsageError(
            f"there are {len(own)} weights and calibration scores of {len(calibration)} clients; "
            "each client has one weight."
        )
    array = check_scores(scores)
    # Sums stay below scale + extra, so that 64 bits hold them if they hold these.
    left = np.full(array.shape, scale + extra, np.int64 if scale + extra < 2**63 else object)
    for weight, held in zip(own, calibration, strict=True):
        below = np.searchsorted(np.sort(check_scores(held).ravel()), array, side="left")
        left = left - weight * below.astype(left.dtype)
    return np.asarray(np.minimum(left, scale) / scale, dtype=np.float64)


def group_p_values(
    scores: ArrayLike, calibration: Sequence[ArrayLike], rule: str, pooled: NDArray[np.float64]
) -> NDArray[np.float64]:
    """P-values of a group with a threshold of its own, from its scores at each client.

    ``pooled`` are the p-values of the same scores by all calibration scores. Where the group's rank
    does not exist, its threshold is the pooled one but never below its largest score; so a score
    above all of the group's has the smaller of both p-values.
    """
    held = [own for own in map(check_scores, calibration) if own.size]
    if not held:
        return pooled
    array = check_scores(scores)
    own = p_values(array, held, rule_weights(rule, [part.size for part in held]))
    above = array > max(part.max() for part in held)
    return np.where(above, np.minimum(own, pooled), own)
