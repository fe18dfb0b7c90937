"""What a predictor remembers of its calibration: enough for a threshold at any level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.conformal.checks import check_alpha
from fedcover.conformal.order import exact_rank

POOLED = "pooled"


@dataclass(frozen=True)
class Groups:
    """Of every calibration score, whose it is and which group it counts for."""

    client: NDArray[np.int64]
    member: NDArray[np.int64]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Calibration:
    """The calibration nodes' scores in ascending order, without their nodes.

    ``clients`` counts all clients, also those without a calibration node. With ``groups``, every
    client, class or group (``kind``) has a threshold of its own (docs/guarantee.md).
    """

    scores: NDArray[np.float32]
    clients: int
    kind: str = POOLED
    groups: Groups | None = None

    @classmethod
    def of(
        cls,
        scores: NDArray[np.float32],
        clients: int,
        kind: str = POOLED,
        groups: Groups | None = None,
    ) -> Calibration:
        """From scores in any order."""
        order = np.argsort(scores, kind="stable")
        if groups is not None:
            groups = Groups(groups.client[order], groups.member[order], groups.names)
        return cls(np.asarray(scores, dtype=np.float32)[order], clients, kind, groups)

    def q_hat(self, alpha: float) -> float:
        """Theorem 1: the ⌈(1−α)(N+K)⌉-th smallest score, or +inf where there are fewer."""
        rank = exact_rank(check_alpha(alpha), len(self.scores), self.clients)
        return float(self.scores[rank - 1]) if rank <= len(self.scores) else float("inf")

    def q_hats(self, alpha: float) -> NDArray[np.float32]:
        """The thresholds of all groups; a group that is too small has the pooled one."""
        if self.groups is None:
            return np.array([self.q_hat(alpha)], dtype=np.float32)
        places = [np.flatnonzero(self.groups.client == k) for k in range(self.clients)]
        found = conformal.group_thresholds(
            [self.scores[own] for own in places],
            [self.groups.member[own] for own in places],
            check_alpha(alpha),
            groups=len(self.groups.names),
        )
        return np.array([one.q_hat for one in found], dtype=np.float32)
