"""Settings of a recipe's parts (``+prox`` to ``+mix``), without what they set going."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any

from fedcover.errors import UsageError
from fedcover.federation import Prior

MAX_STRENGTH = 10.0  # of the prior: a label that 100 nodes lack gets about e^-50, still a number


@dataclass(frozen=True, kw_only=True)
class PersonalSettings:
    """How a client makes the shared model its own.

    ``shrinkage`` is worth so many validation nodes of the whole federation beside a client's own
    when it chooses its weights of the mixture; infinite: all clients take the same weights.
    """

    prox: float = 0.1  # FedProx's μ: how strongly a client is held near the shared model
    prior_smoothing: float = 5.0  # nodes, spread evenly over the labels, added to a client's own
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
        smoothing, strength = self.prior_smoothing, self.prior_strength
        if not (_is_number(smoothing) and 0 < smoothing < inf):
            raise UsageError(
                f"prior_smoothing is {smoothing!r}; it must be a positive number, or a "
                "label that a client never trained on would be impossible there."
            )
        if not (_is_number(strength) and 0 <= strength <= MAX_STRENGTH):
            raise UsageError(
                f"prior_strength is {strength!r}; it must lie in 0 … {MAX_STRENGTH:g}, or a label "
                "that a client never trained on would be impossible there."
            )
        if not (_is_number(self.shrinkage) and self.shrinkage >= 0):
            raise UsageError(f"shrinkage is {self.shrinkage!r}; it must be 0 or more.")
        if not (_is_number(self.prox) and 0 < self.prox < inf):
            raise UsageError(f"prox is {self.prox!r}; it must be a positive number.")

    @property
    def prior(self) -> Prior:
        """How a client's label mix enters its logits."""
        return Prior(self.prior_smoothing, self.prior_strength)


def _is_number(value: Any) -> bool:
    """Whether it is a real number; Python counts True and False among them, we do not."""
    return isinstance(value, Real) and not isinstance(value, bool)
