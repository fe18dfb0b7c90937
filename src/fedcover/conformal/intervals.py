"""Where the coverage of splits that were really calibrated lies, if exchangeability held."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedcover.errors import UsageError

CONFIDENCE = 0.95
Interval = tuple[float, float]


def beta_binomial_interval(
    n: Sequence[int], m: Sequence[int], rank: Sequence[float], confidence: float = CONFIDENCE
) -> Interval:
    """Where the covered share of all test nodes of independent splits lies, with ``confidence``.

    Split s has n_s calibration and m_s test nodes of one exchangeable pool without ties, and takes
    the r_s-th smallest score: it covers BetaBinomial(m_s, r_s, n_s + 1 − r_s) nodes. The sum over
    splits is found by convolution; each tail holds at most (1 − confidence)/2. A rank need not be
    whole: (1 − α)(n + 1) means a coverage of 1 − α exactly. From n + 1 on all nodes are covered.
    Parties that differ scatter less, so for them the interval is conservative.
    """
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence}; it must lie strictly between 0 and 1.")
    if not len(n) == len(m) == len(rank) or sum(m) < 1 or min(*n, *m) < 0 or min(rank) <= 0:
        raise UsageError(
            "n, m and rank must have one number for each split: none negative, ranks above 0, and "
            "one test node at least."
        )
    return _interval(tuple(n), tuple(m), tuple(rank), confidence)


@lru_cache(maxsize=256)  # many cells of a table have the same numbers
def _interval(
    n: tuple[int, ...], m: tuple[int, ...], rank: tuple[float, ...], confidence: float
) -> Interval:
    total, tail = sum(m), (1 - confidence) / 2
    length = total + 1
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    for split in zip(m, rank, n, strict=True):
        spectrum *= np.fft.rfft(_mass(*split), length)
    reached = np.cumsum(np.fft.irfft(spectrum, length))
    # The outermost counts that leave no more than the tail beyond them.
    low, high = (int(np.searchsorted(reached, end)) for end in (tail, 1 - tail))
    return low / total, min(high, total) / total


def _mass(m: int, rank: float, n: int) -> NDArray[np.float64]:
    """P(k of m covered), by the ratio of neighbours: (m−k)(a+k) / ((k+1)(b+m−k−1))."""
    a, b, k = rank, n + 1 - rank, np.arange(m)
    if b <= 0:
        return np.asarray(np.arange(m + 1) == m, dtype=np.float64)
    steps = np.log((m - k) * (a + k)) - np.log((k + 1) * (b + m - k - 1))
    heights = np.concatenate([[0.0], np.cumsum(steps)])
    mass = np.exp(heights - heights.max())
    return np.asarray(mass / mass.sum(), dtype=np.float64)
