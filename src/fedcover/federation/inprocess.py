"""The in-process engine: simulates all clients of all seeds on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch

from fedcover.federation.engine import Federation, OnRound, Plan, Trained
from fedcover.federation.program import train_stack

LARGE = 10_000  # nodes from which a second thread pays within one product


class InProcess:
    """Every core trains one stack of federations.

    Threads that share one small product wait for each other after each of thousands of products,
    and for milliseconds each time when the machine is busy; threads with a stack each never wait.
    """

    def train(
        self, federations: Sequence[Federation], plan: Plan, *, on_round: OnRound | None = None
    ) -> list[Trained]:
        """Train every federation under the plan; see :class:`fedcover.federation.Engine`."""
        cores = torch.get_num_threads()
        parts = np.array_split(np.arange(len(federations)), min(cores, len(federations)))
        stacks = [[federations[i] for i in part] for part in parts]
        nodes = sum(client.nodes for client in stacks[0][0].clients) * len(stacks[0])
        report = _Rounds(len(stacks), on_round)
        with _threads(max(cores // len(stacks), 1) if nodes >= LARGE else 1):
            if len(stacks) == 1:
                return train_stack(stacks[0], plan, report.of(0))
            with ThreadPoolExecutor(len(stacks)) as pool:
                futures = [
                    pool.submit(train_stack, stack, plan, report.of(k))
                    for k, stack in enumerate(stacks)
                ]
                return [trained for future in futures for trained in future.result()]


class _Rounds:
    """A round is done when the last stack has done it."""

    def __init__(self, stacks: int, on_round: OnRound | None) -> None:
        self._done = [0] * stacks
        self._reported = 0
        self._on_round = on_round
        self._lock = Lock()

    def of(self, stack: int) -> OnRound | None:
        """What the given stack calls after each of its rounds."""
        if self._on_round is None:
            return None
        report: Callable[[int], None] = self._on_round

        def done(rounds: int) -> None:
            with self._lock:
                self._done[stack] = rounds
                if min(self._done) > self._reported:
                    self._reported += 1
                    report(self._reported)

        return done


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch use so many threads for one product, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
