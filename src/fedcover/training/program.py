r"""Many parties' local training as one program, round by round.

A simulation stacks all parties of all seeds; a party by itself is a federation of one. FedAvg
(McMahan et al., 2017) averages the parties' changes,

.. math:: \theta \leftarrow \theta + \sum_k \frac{n_k}{n} (\theta_k - \theta),

and each term of the sum is rounded to a multiple of :math:`2^{-b}` (:func:`fraction_bits`). In
single precision a change below 16 then adds up exactly in floats, too: the program's sums are
those of the integers that parties send (:mod:`fedcover.fixed_point`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover import fixed_point
from fedcover.errors import DataError
from fedcover.models import Weights, initial_weights
from fedcover.models.gnn import weight_shapes
from fedcover.training.averaging import Averaging
from fedcover.training.optimiser import Optimiser
from fedcover.training.plan import Federation, PartyGraph, Plan, initialiser
from fedcover.training.receptive_field import Field
from fedcover.training.stack import Parameters, Stack


def fraction_bits(dtype: torch.dtype) -> int:
    """How finely a change of a weight is rounded before it is added up."""
    return 20 if dtype == torch.float32 else 44


def as_integers(terms: Weights) -> dict[str, fixed_point.Integers]:
    """A party's terms of the sum as it sends them."""
    try:
        return {
            name: fixed_point.encode(tensor.numpy(), bits=0)
            for name, tensor in terms._asdict().items()
        }
    except DataError as error:
        raise DataError(
            "training diverged: a weight is not a number, or beyond all bounds; scale the features "
            "or lower the learning rate."
        ) from error


@dataclass(frozen=True)
class Shared:
    """One federation's shared model as the program holds it."""

    parameters: Parameters
    place: int
    averaging: Averaging

    @property
    def weights(self) -> Weights:
        """A copy of its own."""
        return self.averaging.weights(self.parameters, self.place)


class Program:
    """The parties' graphs, their weights, and what their optimisers remember."""

    @torch.no_grad()
    def __init__(
        self,
        federations: Sequence[Federation],
        plan: Plan,
        start: Sequence[Weights] | None = None,
        total: int | None = None,
    ) -> None:
        """``total`` is the number of training nodes of all parties, where not all are here."""
        began = time.perf_counter()
        self.plan = plan
        self.stack = stack = Stack(federations, plan)
        self._averaging = Averaging(stack, fraction_bits(plan.dtype), total)
        self._size = (plan.model, stack.features, plan.hidden, plan.classes)
        drawn = start or [initial_weights(*self._size, initialiser(f.seed)) for f in federations]
        self._begun = self._shared = self._averaging.shared(drawn)
        self._local = self._averaging.broadcast(self._shared)
        self._sent = self._local.clone() if plan.average else self._local
        self._kept = self._local if plan.average else self._local.clone()
        self._optimiser = Optimiser(stack, self._local)
        self._validation = _Validation(stack)
        self.seconds = time.perf_counter() - began

    @torch.no_grad()
    def receive(self, weights: Sequence[Weights]) -> None:
        """Go on from these shared weights, one for each federation."""
        self._shared = self._averaging.shared(weights)
        self._averaging.broadcast(self._shared, into=self._local)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of one model, by tensor."""
        return weight_shapes(*self._size)

    def shared(self, federation: int) -> Shared:
        """The federation's model after the last average."""
        return Shared(self._shared, federation, self._averaging)

    def losses(self) -> tuple[fixed_point.Integers, NDArray[np.int64]]:
        """By federation: the sum over validation nodes, in fixed point, and their number."""
        began = time.perf_counter()
        found = self._validation.totals(self._local), self._validation.count
        self.seconds += time.perf_counter() - began
        return found

    @torch.no_grad()
    def fit(self, round_: int) -> None:
        """All local steps of one round."""
        began = time.perf_counter()
        if self.plan.average:
            for before, now in zip(self._sent, self._local, strict=True):
                before.copy_(now)
        self._optimiser.round(self._local, round_, self._sent)
        self.seconds += time.perf_counter() - began

    @torch.no_grad()
    def average(self) -> None:
        """Add the parties' changes to the shared models, and hand these to the parties."""
        began = time.perf_counter()
        self._shared = self._averaging.average(self._local, self._sent, self._shared)
        self._averaging.broadcast(self._shared, into=self._local)
        self.seconds += time.perf_counter() - began

    @torch.no_grad()
    def change(self, federation: int = 0) -> dict[str, fixed_point.Integers]:
        """What the only party of this federation sends: its share of the sum, as integers."""
        return as_integers(self._averaging.change(self._local, self._sent, federation))

    @torch.no_grad()
    def keep(self, federations: Sequence[int]) -> None:
        """Remember the parties' own models of these federations as they are now."""
        chosen = np.isin(np.arange(self.stack.federations), federations)
        if chosen.all():
            self._kept = self._local.clone()
            return
        rows_of, mask = self._averaging.federation_of_rows(), torch.from_numpy(chosen)
        for kept, now, rows in zip(self._kept, self._local, rows_of, strict=True):
            kept[mask[rows]] = now[mask[rows]]

    def own_weights(self, *, kept: bool = True) -> list[list[Weights]]:
        """The parties' own models, by federation and party: those kept, or those of now."""
        local = self._kept if kept else self._local
        return [
            [self._averaging.client_weights(local, self._begun, int(k)) for k in places]
            for places in self._places()
        ]

    @torch.no_grad()
    def restore_own(self, weights: Weights) -> None:
        """Go on with this model of the only party here."""
        for into in (self._local, self._kept):
            self._averaging.broadcast(self._averaging.shared([weights]), into=into)

    @torch.no_grad()
    def logits(self, weights: Sequence[Weights] | None = None) -> list[list[NDArray[np.float32]]]:
        """Outputs for all nodes, by federation and party, of these shared models; without any, of
        the models that the parties kept."""
        local = self._kept
        if weights is not None:
            local = self._averaging.broadcast(self._averaging.shared(weights))
        by_party = _logits(self.stack, local)
        return [[by_party[k] for k in places] for places in self._places()]

    def state(self) -> dict[str, NDArray[np.floating]]:
        """What the optimisers remember from round to round."""
        return self._optimiser.state()

    def restore(self, state: Mapping[str, NDArray[np.floating]]) -> None:
        """Go on where :meth:`state` was taken."""
        self._optimiser.restore(state)

    def _places(self) -> list[NDArray[np.int64]]:
        """By federation, where its parties stand in the stack, in their own order."""
        found = []
        for f in range(self.stack.federations):
            places = np.flatnonzero(self.stack.federation_of == f)
            found.append(places[np.argsort(self.stack.number_of[places])])
        return found


@torch.no_grad()
def forward(
    clients: Sequence[PartyGraph], weights: Sequence[Weights], plan: Plan
) -> list[NDArray[np.float32]]:
    """The logits of every client's nodes under its own weights, as training computes them."""
    stack = Stack([Federation([client], 0, first=k) for k, client in enumerate(clients)], plan)
    averaging = Averaging(stack, bits=0)
    by_place = _logits(stack, averaging.broadcast(averaging.shared(weights)))
    return [by_place[place] for place in np.argsort(stack.federation_of)]


def _logits(stack: Stack, local: Parameters) -> list[NDArray[np.float32]]:
    """Of all nodes, by the parties' places in the stack."""
    rows = Field(stack, np.arange(len(stack.y))).logits(local).numpy()
    return np.split(rows, stack.starts[1:-1])


class _Validation:
    """Each party's loss over its validation nodes, added up by federation."""

    def __init__(self, stack: Stack) -> None:
        nodes = stack.nodes("valid")
        self._field = Field(stack, nodes) if len(nodes) else None
        self._client = stack.client_of_node[nodes]
        self._federation_of = stack.federation_of
        federation = self._federation_of[self._client]
        self.count = np.bincount(federation, minlength=stack.federations)

    @torch.no_grad()
    def totals(self, local: Parameters) -> fixed_point.Integers:
        if self._field is None:
            return np.zeros(len(self.count), dtype=np.int64)
        logits: Tensor = self._field.logits(local)
        loss = torch.nn.functional.cross_entropy(logits, self._field.y, reduction="none")
        parties = len(self._federation_of)
        values = loss.double().numpy()
        own = np.bincount(self._client, values, minlength=parties).astype(np.float64)
        total = np.zeros(len(self.count), dtype=np.int64)
        np.add.at(total, self._federation_of, encode_loss(own.astype(np.float64)))
        return total


NO_LOSS = np.iinfo(np.int64).min // 4096
"""A loss that is no number: whatever is added to it stays far below zero."""


def encode_loss(values: NDArray[np.float64]) -> fixed_point.Integers:
    """Losses in fixed point; what is not a number, or beyond all bounds, is :data:`NO_LOSS`."""
    good = np.isfinite(values) & (np.abs(values) < 2.0**28)
    return np.where(good, fixed_point.encode(np.where(good, values, 0.0)), NO_LOSS)


def mean_loss(total: int, count: int) -> float:
    """The mean over all parties' validation nodes; NaN without any, infinite if it is no number."""
    if not count:
        return float("nan")
    if total < 0:
        return float("inf")
    return float(fixed_point.decode(total)) / count
