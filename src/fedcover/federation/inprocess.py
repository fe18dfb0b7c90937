"""The in-process engine: all clients of all seeds trained as one program."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.federation.averaging import Averaging
from fedcover.federation.engine import Federation, OnRound, Plan, Trained, batches, initialiser
from fedcover.federation.field import Field, TrainingField
from fedcover.federation.first_layer import SparseFirst
from fedcover.federation.stack import Parameters, Stack
from fedcover.models import initial_weights


class InProcess:
    """Simulates the clients on this machine."""

    @torch.no_grad()
    def train(
        self, federations: Sequence[Federation], plan: Plan, *, on_round: OnRound | None = None
    ) -> list[Trained]:
        """Train every federation under the plan; see :class:`fedcover.federation.Engine`."""
        began = time.perf_counter()
        stack = Stack(federations, plan)
        averaging = Averaging(stack)
        size = (stack.features, plan.hidden, plan.classes)
        start = averaging.shared(
            [
                initial_weights(plan.model, *size, initialiser(f.seed)).to(plan.dtype)
                for f in federations
            ]
        )
        shared, local = start, averaging.broadcast(start)
        optimiser = _Optimiser(stack, local)
        validation = _Validation(stack)
        best = _Best(averaging.federation_of_rows(shared=plan.average))
        for round_ in range(plan.rounds):
            optimiser.round(local, round_)
            if plan.average:
                shared = averaging.average(local, shared)
                local.copy_(averaging.broadcast(shared))
            best.update(validation.losses(local), shared if plan.average else local)
            if on_round is not None:
                on_round(round_ + 1)
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
            history = np.array([losses[f] for losses in best.history])
            mine = [by_client[k] for k in places]
            results.append(Trained(weights, mine, history, int(best.round[f]), seconds))
        return results


class _Optimiser:
    """Adam over the stack, in groups of clients that make equally many local steps."""

    def __init__(self, stack: Stack, local: Parameters) -> None:
        plan = stack.plan
        self._stack, self._plan = stack, plan
        sizes = np.array([len(c.train) for c in stack.clients])
        batch = plan.batch_size or int(sizes.max())
        self._steps = plan.local_epochs * np.maximum(-(-sizes // batch), 1)
        self._whole = bool(np.all(sizes <= batch))
        self._train = stack.nodes("train")
        self._first_train = np.cumsum(sizes) - sizes
        self._all = TrainingField(stack, self._train) if self._whole else None
        self._groups = []
        for steps in np.unique(self._steps):
            clients = np.flatnonzero(self._steps == steps)
            rows = slice(int(clients[0]), int(clients[-1]) + 1)
            first = rows
            if isinstance(stack.first, SparseFirst):
                bounds = np.searchsorted(stack.first.client_of_row, [rows.start, rows.stop])
                first = slice(int(bounds[0]), int(bounds[1]))
            slices = [first, rows, rows, rows]
            views = [t[s] for t, s in zip(local.tensors(), slices, strict=True)]
            adam = torch.optim.Adam(views, lr=plan.lr, fused=True)
            self._groups.append((int(steps), slices, views, adam))

    def round(self, local: Parameters, round_: int) -> None:
        plan, stack = self._plan, self._stack
        schedules = None
        if not self._whole:
            schedules = [
                batches(len(c.train), plan, int(seed), int(number), round_)
                for c, seed, number in zip(
                    stack.clients, stack.seed_of, stack.number_of, strict=True
                )
            ]
        for step in range(int(self._steps.max())):
            part = self._all or self._batch(schedules, step)
            gradients = part.gradients(local, (round_ << 20) + step)
            for steps, slices, views, adam in self._groups:
                if step < steps:
                    for view, gradient, rows in zip(views, gradients, slices, strict=True):
                        view.grad = gradient[rows]
                    adam.step()

    def _batch(self, schedules: list[list[NDArray[np.int64]]], step: int) -> TrainingField:
        nodes = [
            self._train[np.sort(schedule[step]) + first]
            for schedule, first in zip(schedules, self._first_train, strict=True)
            if step < len(schedule)
        ]
        return TrainingField(self._stack, np.concatenate(nodes))


class _Validation:
    """The pooled validation loss of each federation."""

    def __init__(self, stack: Stack) -> None:
        nodes = stack.nodes("valid")
        self._field = Field(stack, nodes) if len(nodes) else None
        self._federation = stack.federation_of[stack.client_of_node[nodes]]
        self._count = np.bincount(self._federation, minlength=stack.federations)

    def losses(self, local: Parameters) -> NDArray[np.float64]:
        if self._field is None:
            return np.full(len(self._count), np.nan)
        logits = self._field.logits(local)
        loss = torch.nn.functional.cross_entropy(logits, self._field.y, reduction="none")
        total = np.bincount(self._federation, loss.double().numpy(), minlength=len(self._count))
        with np.errstate(invalid="ignore"):
            return total / self._count


class _Best:
    """The weights of each federation at its best round."""

    def __init__(self, federation_of_rows: list[Tensor]) -> None:
        self._federation_of_rows = federation_of_rows
        federations = int(federation_of_rows[-1].max()) + 1
        self.history: list[NDArray[np.float64]] = []
        self.round = np.zeros(federations, dtype=np.int64)
        self.loss = np.full(federations, np.inf)
        self.kept: Parameters

    def update(self, losses: NDArray[np.float64], current: Parameters) -> None:
        """Keep what improved; without validation nodes the last round counts as best."""
        better = (losses < self.loss) | np.isnan(losses)
        self.loss = np.where(better, losses, self.loss)
        self.round[better] = len(self.history)
        self.history.append(losses)
        if better.all():
            self.kept = Parameters(*(t.clone() for t in current.tensors()))
        elif better.any():
            improved = torch.from_numpy(better)
            for kept, now, rows in zip(
                self.kept.tensors(), current.tensors(), self._federation_of_rows, strict=True
            ):
                mask = improved[rows]
                kept[mask] = now[mask]
