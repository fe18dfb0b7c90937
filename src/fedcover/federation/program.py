"""All clients of all given federations trained as one program."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.federation.averaging import Averaging
from fedcover.federation.engine import (
    Federation,
    OnRound,
    Plan,
    Trained,
    batches,
    diverged,
    initialiser,
)
from fedcover.federation.field import Field, TrainingField
from fedcover.federation.first_layer import SparseFirst
from fedcover.federation.layout import Index
from fedcover.federation.links import LinkField
from fedcover.federation.sets import SetField
from fedcover.federation.stack import Parameters, Stack
from fedcover.models import Weights, initial_weights


@torch.no_grad()
def train_stack(
    federations: Sequence[Federation],
    plan: Plan,
    begin: Sequence[Weights] | None = None,
    on_round: OnRound | None = None,
) -> list[Trained]:
    """Train all clients of all these federations together; one result for each federation."""
    began = time.perf_counter()
    stack = Stack(federations, plan)
    averaging = Averaging(stack)
    size = (stack.features, plan.hidden, plan.classes)
    drawn = begin or [initial_weights(plan.model, *size, initialiser(f.seed)) for f in federations]
    start = averaging.shared([weights.to(plan.dtype) for weights in drawn])
    shared, local = start, averaging.broadcast(start)
    optimiser = _Optimiser(stack, local)
    validation = _Validation(stack)
    best = _Best(
        shared if plan.average else local,
        averaging.federation_of_rows(shared=plan.average),
        validation.count > 0,
        plan.patience,
    )
    if begin is not None:
        best.update(validation.losses(local), shared if plan.average else local)
    for round_ in range(plan.rounds):
        optimiser.round(local, round_)
        if plan.average:
            shared = averaging.average(local, shared)
            averaging.broadcast(shared, into=local)
        best.update(validation.losses(local), shared if plan.average else local)
        if on_round is not None:
            on_round(round_ + 1)
        if not best.waiting.any():
            break
    if (best.round < 0).any():
        raise diverged()
    local = averaging.broadcast(best.kept) if plan.average else best.kept
    logits = Field(stack, np.arange(len(stack.y))).logits(local).numpy()
    by_client = np.split(logits, stack.starts[1:-1])
    seconds = (time.perf_counter() - began) / len(federations)

    results = []
    for f in range(len(federations)):
        places = np.flatnonzero(stack.federation_of == f)
        places = places[np.argsort(stack.number_of[places])]
        if plan.average:
            weights = [averaging.weights(best.kept, f)] * len(places)
        else:
            weights = [averaging.client_weights(local, start, int(k)) for k in places]
        history = np.array([losses[f] for losses in best.history[: best.entries[f]]])
        mine, rounds = [by_client[k] for k in places], len(history) - (begin is not None)
        results.append(Trained(weights, mine, history, int(best.round[f]), rounds, seconds))
    return results


class _Optimiser:
    """Adam at every client, its state kept across rounds.

    Clients that make equally many local steps form a group and step together; with full batches
    there is one group.
    """

    def __init__(self, stack: Stack, local: Parameters) -> None:
        plan = stack.plan
        self._stack = stack
        sizes = np.array([len(c.train) for c in stack.clients])
        batch = plan.batch_size or int(sizes.max())
        self._steps = plan.local_epochs * -(-sizes // batch)
        self._train = np.split(stack.nodes("train"), np.cumsum(sizes)[:-1])
        self._whole: TrainingField | LinkField | SetField | None = None
        if plan.task == "links":
            self._whole = LinkField(stack)
            self._steps = np.full(len(sizes), plan.local_epochs)
        elif plan.task == "sets":
            self._whole = SetField(stack)
            self._steps = np.where(sizes > 0, plan.local_epochs, 0)
        elif int(sizes.max()) <= batch:
            self._whole = TrainingField(stack, stack.nodes("train"))
        self._groups = [
            _Group(stack, local, int(steps), np.flatnonzero(self._steps == steps))
            for steps in np.unique(self._steps)
        ]

    def round(self, local: Parameters, round_: int) -> None:
        """All local steps of all clients between two averagings."""
        fields = repeat(self._whole) if self._whole else self._batches(round_)
        prox = self._stack.plan.prox if self._stack.plan.average else 0.0
        sent = local.clone() if prox else local
        for step, field in zip(range(int(self._steps.max())), fields, strict=False):
            gradients = field.gradients(local, (round_ << 20) + step)
            if prox and step > 0:  # before the first step nothing has drifted
                for gradient, now, before in zip(
                    gradients, local.tensors(), sent.tensors(), strict=True
                ):
                    gradient.add_(now - before, alpha=prox)
            for group in self._groups:
                if step < group.steps:
                    group.step(gradients)

    def _batches(self, round_: int) -> Iterator[TrainingField]:
        """For each step, the field of the batches of those clients that still have one."""
        stack = self._stack
        schedules = [
            batches(len(nodes), stack.plan, int(seed), int(number), round_)
            for nodes, seed, number in zip(self._train, stack.seed_of, stack.number_of, strict=True)
        ]
        for step in range(int(self._steps.max())):
            chosen = [
                nodes[np.sort(schedule[step])]
                for nodes, schedule in zip(self._train, schedules, strict=True)
                if step < len(schedule)
            ]
            yield TrainingField(stack, np.concatenate(chosen))


class _Group:
    """Neighbouring clients of the stack with the same number of local steps in a round."""

    def __init__(self, stack: Stack, local: Parameters, steps: int, clients: Index) -> None:
        self.steps = steps
        rows = slice(int(clients[0]), int(clients[-1]) + 1)
        first = rows
        if isinstance(stack.first, SparseFirst):
            first = stack.first.rows_of(rows.start, rows.stop)
        self._rows = [first, rows, rows, rows]
        self._views = [t[r] for t, r in zip(local.tensors(), self._rows, strict=True)]
        self._adam = torch.optim.Adam(self._views, lr=stack.plan.lr, fused=True)

    def step(self, gradients: list[Tensor]) -> None:
        for view, gradient, rows in zip(self._views, gradients, self._rows, strict=True):
            view.grad = gradient[rows]
        self._adam.step()


class _Validation:
    """The pooled validation loss of each federation."""

    def __init__(self, stack: Stack) -> None:
        nodes = stack.nodes("valid")
        self._field = Field(stack, nodes) if len(nodes) else None
        self._federation = stack.federation_of[stack.client_of_node[nodes]]
        self.count = np.bincount(self._federation, minlength=stack.federations)

    def losses(self, local: Parameters) -> NDArray[np.float64]:
        if self._field is None:
            return np.full(len(self.count), np.nan)
        logits = self._field.logits(local)
        loss = torch.nn.functional.cross_entropy(logits, self._field.y, reduction="none")
        total = np.bincount(self._federation, loss.double().numpy(), minlength=len(self.count))
        with np.errstate(invalid="ignore"):
            return total / self.count


class _Best:
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
