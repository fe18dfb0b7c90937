r"""Averages that a few parties cannot move.

``trimmed`` drops, for every single weight, the largest and the smallest 30 % of the parties'
values, and ``median`` takes the middle one (Yin et al., ICML 2018); both count all parties alike,
since a hostile one would claim many nodes. ``mean`` is FedAvg's, a sum over parties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating]
TRIMMED = 0.3  # share of the parties dropped at each end, at least one of three or more


def trimmed(values: Sequence[Values]) -> Values:
    """The mean of what is left of each weight without its extremes."""
    ordered = np.sort(np.stack(values), axis=0)
    cut = max(round(TRIMMED * len(values)), 1) if len(values) > 2 else 0
    return np.asarray(ordered[cut : len(values) - cut].mean(axis=0))


def median(values: Sequence[Values]) -> Values:
    """The middle value of each weight, or the mean of the two middle ones."""
    return np.asarray(np.median(np.stack(values), axis=0))


AVERAGES: dict[str, Callable[[Sequence[Values]], Values]] = {"trimmed": trimmed, "median": median}
