"""How many scores a promise with confidence asks for (docs/guarantee.md, "A promise with
confidence")."""

from fractions import Fraction
from functools import lru_cache
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

_STEPS = 200  # of the search for the sharpest exponent; any exponent is valid
_BISECTIONS = 60


def binomial_tail(n: int, level: float) -> NDArray[np.float64]:
    """P(Bin(n, level) ≥ r) for r = 0 … n + 1, where 0 < level < 1."""
    r, factorials = np.arange(n + 1), np.cumsum(np.log(np.maximum(np.arange(n + 1), 1)))
    chances = r * log(level) + (n - r) * log(1 - level) - factorials - factorials[::-1]
    pmf = np.exp(chances - chances.max())
    return np.concatenate([np.cumsum(pmf[::-1])[::-1] / pmf.sum(), [0.0]])


def binomial_rank(n: int, level: Fraction, risk: float) -> int:
    """The least rank r above ⌈n·level⌉ with P(Bin(n, level) ≥ r) ≤ risk; above n: there is none.

    Where clients differ, the scores below a point are a sum of unequal coins. Above its mean its
    tail is at most the binomial's (Hoeffding 1956), which is why r must lie there.
    """
    chance, least = float(level), ceil(n * level) + 1
    if chance >= 1:
        return n + 1
    if chance <= 0:
        return least
    return max(least, int(np.argmax(binomial_tail(n, chance) <= risk)))


@lru_cache(maxsize=256)
def worst_case_reach(v: tuple[float, ...], n: tuple[int, ...], level: float, risk: float) -> float:
    r"""A weighted count :math:`\tau` that is reached below the quantile with at most this risk.

    For independent coins of chances f_k, n_k of them with weight v_k at client k, and any f with
    :math:`\sum_k n_k v_k f_k \le` ``level``, Chernoff's bound gives for every λ > 0

    .. math::

       P(X \ge \tau) \le
       \exp(-\lambda\tau + \max_f \textstyle\sum_k n_k \log(1 + f_k (e^{\lambda v_k} - 1)))

    The maximum is concave in f, and found by its multiplier; λ is searched.
    """
    weights, counts = (np.array(both, dtype=np.float64) for both in (v, n))
    held = (weights > 0) & (counts > 0)
    weights, counts = weights[held], counts[held]
    if weights @ counts <= level:
        return 2.0  # all weights together are at most 1: never
    rate = np.geomspace(1e-2, 50.0, _STEPS)[:, None] / weights.max()
    gain = np.expm1(rate * weights)
    most = np.log1p(_worst_chances(gain, weights, counts, level) * gain) @ counts
    return float(((most - log(risk)) / rate[:, 0]).min()) * (1 + 1e-12)


def _worst_chances(
    gain: NDArray[np.float64],
    weights: NDArray[np.float64],
    counts: NDArray[np.float64],
    level: float,
) -> NDArray[np.float64]:
    """The f in 0 … 1 with Σ n_k v_k f_k = level that maximise Σ n_k log(1 + f_k·gain_k), by row."""
    low, high = np.full((2, len(gain), 1), [[[-60.0]], [[60.0]]])  # logarithms of the multiplier
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        chances = np.clip(np.exp(-middle) / weights - 1 / gain, 0.0, 1.0)
        above = (chances @ (counts * weights))[:, None] > level
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    # The smaller multiplier: chances a little above the constraint keep the bound valid.
    return np.asarray(np.clip(np.exp(-low) / weights - 1 / gain, 0.0, 1.0))
