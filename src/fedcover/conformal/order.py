"""Float32 scores as ordered integers, and the rank in exact arithmetic (docs/guarantee.md)."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, lcm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import Shares, check_alpha, check_scores, check_shares

_SIGN = np.uint32(0x8000_0000)
_ALL = np.uint32(0xFFFF_FFFF)


def order_key(scores: ArrayLike) -> NDArray[np.uint32]:
    """Map float32 scores to uint32 so that the keys are ordered as the scores are.

    A positive number's bit pattern already grows with it, so its sign bit is set; a negative one's
    shrinks, so all its bits are flipped. −0.0 counts as +0.0; ±inf have keys; NaN is refused.
    """
    bits = check_scores(scores).view(np.uint32)
    return bits ^ np.where(bits >= _SIGN, _ALL, _SIGN)


def from_order_key(keys: ArrayLike) -> NDArray[np.float32]:
    """Map keys back to the float32 scores they stand for; the inverse of :func:`order_key`."""
    bits = np.asarray(keys, dtype=np.uint32)
    return (bits ^ np.where(bits >= _SIGN, _SIGN, _ALL)).view(np.float32)


def exact_rank(alpha: float, n: int, clients: int = 1) -> int:
    """⌈(1−α)(N+K)⌉, the rank of Theorem 1, for N calibration scores at K clients.

    It may exceed N: then no calibration score is large enough, and q̂ is +∞. The product is taken
    in rational arithmetic on the simplest fraction within 1e-12 of alpha, so that 0.1 and 1 − 0.9
    both mean one tenth, and 0.18 with N + K = 150 gives 123, where floats give 124. That fraction
    is 1 for an alpha within 1e-12 of 1; the rank is 1 then, the least that an alpha below 1 has.
    """
    level = 1 - Fraction(check_alpha(alpha)).limit_denominator(10**12)
    return max(1, ceil(level * (int(n) + int(clients))))


def mixture_weights(n: Sequence[int], shares: Shares | None = None) -> tuple[list[int], int]:
    """Whole numbers w_k and s with w_k / s = p_k/(n_k + 1), for n_k scores at client k.

    The scores ≤ q, c_k of them at client k, suffice for the level 1 − α if Σ w_k·c_k is at least
    ``exact_rank(alpha, s, 0)``: the same as Σ p_k·c_k/(n_k + 1) ≥ 1 − α, without rounding. With the
    shares of Theorem 1, p_k = (n_k + 1)/(N + K), which ``None`` stands for, every w_k is 1, s is
    N + K, and the level is the theorem's rank.
    """
    sizes = [int(size) + 1 for size in n]
    parts = check_shares(sizes if shares is None else shares, len(sizes))
    weights = [part / size for part, size in zip(parts, sizes, strict=True)]
    scale = lcm(*(weight.denominator for weight in weights))
    return [int(weight * scale) for weight in weights], scale
