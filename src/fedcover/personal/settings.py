"""Settings of ``+prior``, ``+tuned`` and ``+mix``, kept apart from what they set in motion."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from fedcover.errors import UsageError
from fedcover.federation import Prior


@dataclass(frozen=True, kw_only=True)
class PersonalSettings:
    """How a client makes the shared model its own; all of it is chosen by validation nodes.

    ``shrinkage`` is worth so many validation nodes of the whole federation beside a client's own
    when it chooses its weights of the mixture; infinite: all clients take the same weights.
    """

    prior_smoothing: float = 1.0  # nodes, spread evenly over the labels, added to a client's own
    prior_strength: float = 0.5  # of log π in the logits
    tune_rounds: int = 30  # of local training from the shared model on, the best is kept
    tune_epochs: int = 1
    local_rounds: int = 40  # of the model that never saw another client
    shrinkage: float = 100.0

    def __post_init__(self) -> None:
        for name in ("tune_rounds", "tune_epochs", "local_rounds"):
            value = getattr(self, name)
            if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
                raise UsageError(f"{name} is {value!r}; it must be a whole number of 1 or more.")
        if not (isfinite(self.prior_smoothing) and self.prior_smoothing > 0):
            raise UsageError(
                f"prior_smoothing is {self.prior_smoothing!r}; it must be a positive number, or a "
                "label that a client never trained on would be impossible there."
            )
        if not (isfinite(self.prior_strength) and self.prior_strength >= 0):
            raise UsageError(
                f"prior_strength is {self.prior_strength!r}; it must be 0 or a positive number."
            )
        if not self.shrinkage >= 0:
            raise UsageError(f"shrinkage is {self.shrinkage!r}; it must be 0 or more.")

    @property
    def prior(self) -> Prior:
        """How a client's label mix enters its logits."""
        return Prior(self.prior_smoothing, self.prior_strength)
