"""What a predictor remembers of its calibration: enough for a threshold at any level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.checks import check_alpha
from fedcover.conformal.order import exact_rank


@dataclass(frozen=True)
class Calibration:
    """The calibration nodes' scores in ascending order, without their nodes.

    ``clients`` counts all clients, also those without a calibration node.
    """

    scores: NDArray[np.float32]
    clients: int

    @classmethod
    def of(cls, scores: NDArray[np.float32], clients: int) -> Calibration:
        """From scores in any order."""
        return cls(np.sort(np.asarray(scores, dtype=np.float32)), clients)

    def q_hat(self, alpha: float) -> float:
        """Theorem 1: the ⌈(1−α)(N+K)⌉-th smallest score, or +inf where there are fewer."""
        rank = exact_rank(check_alpha(alpha), len(self.scores), self.clients)
        return float(self.scores[rank - 1]) if rank <= len(self.scores) else float("inf")
