"""The pooled validation loss, and the round where it is lowest."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.training.receptive_field import Field
from fedcover.training.stack import Parameters, Stack


class Validation:
    """The pooled validation loss of each federation."""

    def __init__(self, stack: Stack) -> None:
        nodes = stack.nodes("valid")
        self._field = Field(stack, nodes) if len(nodes) else None
        self._federation = stack.federation_of[stack.client_of_node[nodes]]
        self.count = np.bincount(self._federation, minlength=stack.federations)

    def totals(self, local: Parameters) -> NDArray[np.float64]:
        """Summed over each federation's validation nodes; 0 without any."""
        if self._field is None:
            return np.zeros(len(self.count))
        logits = self._field.logits(local)
        loss = torch.nn.functional.cross_entropy(logits, self._field.y, reduction="none")
        total = np.bincount(self._federation, loss.double().numpy(), minlength=len(self.count))
        return total.astype(np.float64)

    def losses(self, local: Parameters) -> NDArray[np.float64]:
        """The mean over each federation's validation nodes; NaN without any."""
        with np.errstate(invalid="ignore"):
            return self.totals(local) / self.count


class Best:
    """The weights of each federation at its best round."""

    def __init__(
        self,
        start: Parameters,
        federation_of_rows: list[Tensor],
        validated: NDArray[np.bool_],
        patience: int | None,
    ) -> None:
        self._federation_of_rows = federation_of_rows
        self._validated = validated
        self._patience = np.inf if patience is None else patience
        federations = len(validated)
        self.history: list[NDArray[np.float64]] = []
        self.round = np.full(federations, -1)
        self.loss = np.full(federations, np.inf)
        self.waiting = np.ones(federations, dtype=bool)  # for a better round
        self.entries = np.zeros(federations, dtype=np.int64)  # of the history, until then
        self.kept = start.clone()

    def update(self, losses: NDArray[np.float64], current: Parameters) -> None:
        """Keep what improved; without validation nodes the last round counts as best."""
        better = ((losses < self.loss) | ~self._validated) & self.waiting
        self.loss = np.where(better, losses, self.loss)
        self.round[better] = len(self.history)
        self.history.append(losses)
        self.entries[self.waiting] = len(self.history)
        self.waiting &= len(self.history) - 1 - self.round < self._patience
        if better.all():
            self.kept = current.clone()
        elif better.any():
            improved = torch.from_numpy(better)
            for kept, now, rows in zip(
                self.kept.tensors(), current.tensors(), self._federation_of_rows, strict=True
            ):
                mask = improved[rows]
                kept[mask] = now[mask]
