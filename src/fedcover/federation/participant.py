"""One client of a federation whose other clients are elsewhere.

What :mod:`fedcover.federation.program` does for all clients at once, here stops between two
averagings: the shared weights come in, the client's own go out. Several models (the cells of Gen's
grid) are trained side by side, each on a graph of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedcover.federation.validation import Validation
from fedcover.models import Weights, initial_weights
from fedcover.training.averaging import Averaging
from fedcover.training.optimiser import Optimiser
from fedcover.training.plan import Federation, PartyGraph, Plan, initialiser
from fedcover.training.receptive_field import Field
from fedcover.training.stack import Stack


class Participant:
    """The graphs of one client, one for each model, and what its optimiser remembers."""

    @torch.no_grad()
    def __init__(self, graphs: Sequence[PartyGraph], seed: int, number: int, plan: Plan) -> None:
        self._stack = Stack([Federation([graph], seed, first=number) for graph in graphs], plan)
        self._averaging = Averaging(self._stack)
        self._validation = Validation(self._stack)
        size = (self._stack.features, plan.hidden, plan.classes)
        start = initial_weights(plan.model, *size, initialiser(seed)).to(plan.dtype)
        self._shared = self._averaging.shared([start] * len(graphs))
        self._local = self._averaging.broadcast(self._shared)
        self._optimiser = Optimiser(self._stack, self._local)

    @torch.no_grad()
    def receive(self, weights: Sequence[Weights]) -> None:
        """Begin from these weights, one for each model; before, from those of the seed."""
        dtype = self._stack.plan.dtype
        self._shared = self._averaging.shared([one.to(dtype) for one in weights])
        self._averaging.broadcast(self._shared, into=self._local)

    def losses(self) -> NDArray[np.float64]:
        """Each model's loss as received, summed over the client's validation nodes."""
        return self._validation.totals(self._local)

    @torch.no_grad()
    def fit(self, round_: int) -> list[Weights]:
        """All local steps of one round; the client's weights after them."""
        self._optimiser.round(self._local, round_)
        models = range(len(self._stack.clients))
        return [self._averaging.client_weights(self._local, self._shared, k) for k in models]

    @torch.no_grad()
    def logits(self) -> list[NDArray[np.float32]]:
        """Each model's outputs as received, for all nodes of its graph."""
        rows = Field(self._stack, np.arange(len(self._stack.y))).logits(self._local)
        return np.split(rows.numpy(), self._stack.starts[1:-1])

    def state(self) -> dict[str, NDArray[np.floating]]:
        """What is kept from round to round."""
        return self._optimiser.state()

    def restore(self, state: Mapping[str, NDArray[np.floating]]) -> None:
        """Go on where :meth:`state` was taken."""
        self._optimiser.restore(state)
