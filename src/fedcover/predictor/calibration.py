"""What a predictor remembers of its calibration: enough for a threshold at any level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.conformal.checks import Shares

POOLED = "pooled"
Asked = tuple[float, str, tuple[float | Fraction, ...] | None]
"""A level, a rule and shares."""


@dataclass(frozen=True)
class Groups:
    """Who has a threshold of its own, a ``client``, ``class`` or ``group``, by name; and of every
    calibration score, for which of them it counts."""

    kind: str
    names: tuple[str, ...]
    member: NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """The calibration nodes' scores in ascending order, and whose they are; not their nodes.

    ``clients`` counts all clients, also those without a calibration node. With ``groups``, each of
    them has a threshold of its own (docs/guarantee.md).
    """

    scores: NDArray[np.float32]
    client: NDArray[np.int64]
    clients: int
    groups: Groups | None = None
    _found: dict[Asked, tuple[conformal.Threshold, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        scores: NDArray[np.float32],
        client: NDArray[np.int64],
        clients: int,
        groups: Groups | None = None,
    ) -> Calibration:
        """From scores in any order."""
        order = np.argsort(scores, kind="stable")
        if groups is not None:
            groups = Groups(groups.kind, groups.names, groups.member[order])
        return cls(np.asarray(scores, dtype=np.float32)[order], client[order], clients, groups)

    @property
    def kind(self) -> str:
        """As ``--calibrate`` has it."""
        return POOLED if self.groups is None else self.groups.kind

    def pooled(self, alpha: float, rule: str, shares: Shares | None = None) -> conformal.Threshold:
        """The one threshold of all nodes."""
        shares = shares if rule == "mixture" else None
        return conformal.calibrate(self._by_client(self.scores), alpha, rule, shares=shares)

    def thresholds(
        self, alpha: float, rule: str, shares: Shares | None = None
    ) -> Sequence[conformal.Threshold]:
        """Those of all groups, or the pooled one alone; what was asked before is remembered."""
        asked = alpha, rule, None if shares is None else tuple(shares)
        if asked not in self._found:  # many groups take a while
            self._found[asked] = tuple(self._find(alpha, rule, shares))
        return self._found[asked]

    def _find(
        self, alpha: float, rule: str, shares: Shares | None
    ) -> Sequence[conformal.Threshold]:
        if self.groups is None:
            return [self.pooled(alpha, rule, shares)]
        return conformal.group_thresholds(
            self._by_client(self.scores),
            self._by_client(self.groups.member),
            alpha,
            groups=len(self.groups.names),
            rule=rule,
        )

    def _by_client(self, values: NDArray[np.generic]) -> list[NDArray[np.generic]]:
        return [values[self.client == k] for k in range(self.clients)]
