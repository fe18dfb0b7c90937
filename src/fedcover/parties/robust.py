r"""How the coordinator makes one model of many: the mean, or one that a few sites cannot move.

``mean`` is FedAvg. ``trimmed`` drops, for every single weight, the largest and the smallest 30 %
of the sites' values, and ``median`` takes the middle one (Yin et al., ICML 2018); both count all
sites alike, since a hostile one would claim many nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating]
TRIMMED = 0.3  # share of the sites dropped at each end, at least one of three or more


def mean(values: Sequence[Values], shares: Sequence[float]) -> Values:
    """The weighted mean, summed in double precision in the sites' order."""
    total = np.zeros(values[0].shape)
    for value, share in zip(values, shares, strict=True):
        total += (share / sum(shares)) * value.astype(np.float64)
    return total.astype(values[0].dtype)


def trimmed(values: Sequence[Values], shares: Sequence[float]) -> Values:  # noqa: ARG001
    """The mean of what is left of each weight without its extremes."""
    ordered = np.sort(np.stack(values), axis=0)
    cut = max(round(TRIMMED * len(values)), 1) if len(values) > 2 else 0
    kept = ordered[cut : len(values) - cut].astype(np.float64)
    return np.asarray(kept.mean(axis=0), dtype=ordered.dtype)


def median(values: Sequence[Values], shares: Sequence[float]) -> Values:  # noqa: ARG001
    """The middle value of each weight, or the mean of the two middle ones."""
    return np.median(np.stack(values), axis=0).astype(values[0].dtype)


AVERAGES: dict[str, Callable[[Sequence[Values], Sequence[float]], Values]] = {
    "mean": mean,
    "trimmed": trimmed,
    "median": median,
}
