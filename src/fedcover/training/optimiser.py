"""The clients' local steps: Adam at every client, all clients of a stack at once."""

from collections.abc import Iterator, Mapping
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.training.plan import Index, batches
from fedcover.training.receptive_field import LinkField, TrainingField
from fedcover.training.stack import Parameters, Stack


class Optimiser:
    """Adam at every client, its state kept across rounds.

    Clients that make equally many local steps form a group and step together; with full batches
    there is one group.
    """

    def __init__(self, stack: Stack, local: Parameters) -> None:
        self._stack, plan, nodes = stack, stack.plan, stack.nodes("train")
        sizes = np.array([len(c.train) for c in stack.clients])
        batch = plan.batch_size or int(sizes.max())
        steps = plan.local_epochs * -(-sizes // batch)
        self._drift = [torch.empty_like(t) for t in local] if plan.prox else []
        self._train = np.split(nodes, np.cumsum(sizes)[:-1])
        self._whole: TrainingField | LinkField | None = None
        if plan.task == "links":
            self._whole, steps = LinkField(stack), np.full(len(sizes), plan.local_epochs)
        elif int(sizes.max()) <= batch:
            self._whole = TrainingField(stack, nodes)
        self._steps = int(steps.max())
        self._groups = [
            _Group(stack, local, int(own), np.flatnonzero(steps == own)) for own in np.unique(steps)
        ]

    def round(self, local: Parameters, round_: int, sent: Parameters) -> None:
        """All local steps of all parties between two averages; ``sent`` is what they began with."""
        fields = repeat(self._whole) if self._whole else self._batches(round_)
        prox = self._stack.plan.prox if self._stack.plan.average else 0.0
        for step, field in zip(range(self._steps), fields, strict=False):
            gradients = field.gradients(local, (round_ << 20) + step)
            if prox and step > 0:  # before the first step nothing has drifted
                drifted = zip(gradients, local, sent, self._drift, strict=True)
                for gradient, now, before, drift in drifted:
                    gradient.add_(torch.sub(now, before, out=drift), alpha=prox)
            for group in self._groups:
                if step < group.steps:
                    group.step(gradients)
            del gradients  # before the next ones are made

    def state(self) -> dict[str, NDArray[np.floating]]:
        """What Adam remembers, by names that begin with ``adam.``; empty before the first step."""
        named = (adam_state(group.adam, f"adam.{g}.") for g, group in enumerate(self._groups))
        return {name: value for own in named for name, value in own.items()}

    def restore(self, state: Mapping[str, NDArray[np.floating]]) -> None:
        """Go on from what :meth:`state` returned."""
        for g, group in enumerate(self._groups):
            restore_adam(group.adam, state, f"adam.{g}.")

    def _batches(self, round_: int) -> Iterator[TrainingField]:
        """For each step, the field of the batches of those clients that still have one."""
        plan, keyed = self._stack.plan, zip(self._train, self._stack.keys, strict=True)
        schedules = [(own, batches(len(own), plan, *key, round_)) for own, key in keyed]
        for step in range(self._steps):
            chosen = [own[np.sort(steps[step])] for own, steps in schedules if step < len(steps)]
            yield TrainingField(self._stack, np.concatenate(chosen))


class _Group:
    """Neighbouring clients of the stack with the same number of local steps in a round."""

    def __init__(self, stack: Stack, local: Parameters, steps: int, clients: Index) -> None:
        self.steps = steps
        rows = slice(int(clients[0]), int(clients[-1]) + 1)
        self._rows = [stack.first_rows(rows.start, rows.stop), rows, rows, rows]
        self._views = [t[r] for t, r in zip(local, self._rows, strict=True)]
        plan = stack.plan
        self.adam = torch.optim.Adam(
            self._views, lr=plan.lr, weight_decay=plan.weight_decay, fused=True
        )

    def step(self, gradients: list[Tensor]) -> None:
        for view, gradient, rows in zip(self._views, gradients, self._rows, strict=True):
            view.grad = gradient[rows]
        self.adam.step()
        for view in self._views:
            view.grad = None


def adam_state(adam: torch.optim.Adam, prefix: str) -> dict[str, NDArray[np.floating]]:
    """What it remembers, by names that begin with ``prefix``."""
    return {
        f"{prefix}{tensor}.{name}": value.numpy()
        for tensor, entries in adam.state_dict()["state"].items()
        for name, value in entries.items()
    }


def restore_adam(
    adam: torch.optim.Adam, state: Mapping[str, NDArray[np.floating]], prefix: str
) -> None:
    """Go on from what :func:`adam_state` returned."""
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        if key.startswith(prefix):
            tensor, name = key.removeprefix(prefix).split(".")
            entries.setdefault(int(tensor), {})[name] = torch.from_numpy(value.copy())
    adam.load_state_dict({**adam.state_dict(), "state": entries})
