r"""Many parties' local training as one program, round by round.

A simulation stacks all parties of all seeds; a party by itself is a federation of one. FedAvg
(McMahan et al., 2017) averages the parties' changes,

.. math:: \theta \leftarrow \theta + \sum_k \frac{n_k}{n} (\theta_k - \theta),

and each term of the sum is rounded to a multiple of :math:`2^{-b}` (:func:`fraction_bits`). In
single precision a change below 16 then adds up exactly in floats, too: the program's sums are
those of the integers that parties send (:mod:`fedcover.fixed_point`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from fedcover import fixed_point
from fedcover.errors import DataError
from fedcover.models import Weights, initial_weights
from fedcover.models.gnn import arrays_of, propagation, weight_shapes
from fedcover.training.averaging import Averaging
from fedcover.training.optimiser import Optimiser
from fedcover.training.plan import Federation, PartyGraph, Plan, Rows, initialiser, inputs
from fedcover.training.receptive_field import Field
from fedcover.training.stack import Parameters, Stack


def fraction_bits(dtype: torch.dtype) -> int:
    """How finely a change of a weight is rounded before it is added up."""
    return 20 if dtype == torch.float32 else 44


def as_integers(terms: Weights) -> dict[str, fixed_point.Integers]:
    """A party's terms of the sum as it sends them."""
    try:
        return {name: fixed_point.encode(array, bits=0) for name, array in arrays_of(terms).items()}
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
        self.optimiser = Optimiser(stack, self._local)
        valid = stack.nodes("valid")
        self._validation = Field(stack, valid) if len(valid) else None
        self._valid_client = stack.client_of_node[valid]
        # By federation, where its parties stand in the stack, in their own order.
        order = np.lexsort((stack.number_of, stack.federation_of))
        self._places = np.split(order, np.cumsum(np.bincount(stack.federation_of))[:-1])
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

    @torch.no_grad()
    def losses(self) -> tuple[fixed_point.Integers, NDArray[np.int64]]:
        """By federation: the sum over validation nodes, in fixed point, and their number."""
        began, federation_of = time.perf_counter(), self.stack.federation_of
        count = np.bincount(federation_of[self._valid_client], minlength=self.stack.federations)
        total = np.zeros_like(count)
        if self._validation is not None:
            logits = self._validation.logits(self._local)
            loss = cross_entropy(logits, self._validation.y, reduction="none").double().numpy()
            own = np.bincount(self._valid_client, loss, minlength=len(federation_of))
            np.add.at(total, federation_of, encode_loss(own.astype(np.float64)))
        self.seconds += time.perf_counter() - began
        return total, count

    @torch.no_grad()
    def fit(self, round_: int) -> None:
        """All local steps of one round."""
        began = time.perf_counter()
        if self.plan.average:
            for before, now in zip(self._sent, self._local, strict=True):
                before.copy_(now)
        self.optimiser.round(self._local, round_, self._sent)
        self.seconds += time.perf_counter() - began

    @torch.no_grad()
    def average(self) -> None:
        """Add the parties' changes to the shared models, and hand these to the parties."""
        began = time.perf_counter()
        self._shared = self._averaging.average(self._local, self._sent, self._shared)
        self._averaging.broadcast(self._shared, into=self._local)
        self.seconds += time.perf_counter() - began

    @torch.no_grad()
    def change(self) -> dict[str, fixed_point.Integers]:
        """What the only party here sends: its share of the sum, as integers."""
        return as_integers(self._averaging.change(self._local, self._sent, 0))

    @torch.no_grad()
    def keep(self, federations: Sequence[int]) -> None:
        """Remember the parties' own models of these federations as they are now."""
        chosen = torch.from_numpy(np.isin(np.arange(self.stack.federations), federations))
        if chosen.all():
            self._kept = self._local.clone()
            return
        rows_of = self._averaging.federation_of_rows
        for kept, now, rows in zip(self._kept, self._local, rows_of, strict=True):
            kept[chosen[rows]] = now[chosen[rows]]

    def own_weights(self, *, kept: bool = True) -> list[list[Weights]]:
        """The parties' own models, by federation and party: those kept, or those of now."""
        local = self._kept if kept else self._local
        return [
            [self._averaging.client_weights(local, self._begun, int(k)) for k in places]
            for places in self._places
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
        return [[by_party[k] for k in places] for places in self._places]


@torch.no_grad()
def forward(
    clients: Sequence[PartyGraph], weights: Sequence[Weights], plan: Plan
) -> list[NDArray[np.float32]]:
    """The logits of every client's nodes under its own weights, as training computes them."""
    stack = Stack([Federation([client], 0, first=k) for k, client in enumerate(clients)], plan)
    averaging = Averaging(stack, bits=0)
    by_place = _logits(stack, averaging.broadcast(averaging.shared(weights)))
    return [by_place[place] for place in np.argsort(stack.federation_of)]


def hidden_layer(graph: PartyGraph, weights: Weights, plan: Plan) -> Rows:
    """What the model's first layer makes of every node of a party: numbers of 0 or more."""
    x, weight = inputs(graph, plan), graph.edge_weight
    parts = propagation(plan.model, graph.edge_index, graph.nodes, weight)
    first, bias = weights.first.numpy(), weights.first_bias.numpy()
    sums = sum(p @ (x @ own) for p, own in zip(parts, np.split(first, len(parts)), strict=True))
    return np.asarray(np.maximum(sums + bias, 0.0), dtype=np.float32)


def _logits(stack: Stack, local: Parameters) -> list[NDArray[np.float32]]:
    """Of all nodes, by the parties' places in the stack."""
    rows = Field(stack, np.arange(len(stack.y))).logits(local).numpy()
    return np.split(rows, stack.starts[1:-1])


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
    return float("inf") if total < 0 else float(fixed_point.decode(total)) / count
