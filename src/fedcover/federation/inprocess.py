"""The in-process engine: simulates all clients of all seeds on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from threading import Lock

import numpy as np
import torch

from fedcover.federation.program import train_stack
from fedcover.models import Weights
from fedcover.training.plan import Federation, Here, OnRound, Plan, Trained

LARGE = 10_000  # nodes from which a second thread pays within one product


class InProcess(Here):
    """Every core trains one stack of federations.

    Threads that share one small product wait for each other after each of thousands of products,
    and for milliseconds each time when the machine is busy; threads with a stack each never wait.
    """

    def train(
        self,
        federations: Sequence[Federation],
        plan: Plan,
        *,
        start: Sequence[Weights] | None = None,
        on_round: OnRound | None = None,
    ) -> list[Trained]:
        """Train every federation under the plan; see :class:`fedcover.federation.Engine`."""
        cores = torch.get_num_threads()
        nodes = sum(client.nodes for client in federations[0].clients)
        # Large federations gain nothing from company, and one that is out of patience should not
        # be carried along until the last one is.
        alone = plan.patience is not None and nodes >= LARGE
        count = len(federations) if alone else min(cores, len(federations))
        parts = np.array_split(np.arange(len(federations)), count)
        stacks = [[federations[i] for i in part] for part in parts]
        starts = [[start[i] for i in part] if start else None for part in parts]
        rounds = _Rounds(len(stacks), on_round)
        large = nodes * len(stacks[0]) >= LARGE
        with threads(max(cores // len(stacks), 1) if large else 1):
            if len(stacks) == 1:
                return train_stack(stacks[0], plan, starts[0], on_round)
            with ThreadPoolExecutor(min(cores, len(stacks))) as pool:
                futures = [
                    pool.submit(_train_one, stack, plan, begin, rounds, k)
                    for k, (stack, begin) in enumerate(zip(stacks, starts, strict=True))
                ]
                try:
                    waiting = set(futures)
                    while waiting:
                        # Ctrl-C may reach any thread; the main one sees it when it wakes up.
                        ended, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                        _raise_failures(ended)
                    return [trained for future in futures for trained in future.result()]
                except BaseException:  # Ctrl-C, or one stack failed: the others need not go on
                    rounds.stop()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise


def _train_one(
    stack: Sequence[Federation],
    plan: Plan,
    begin: Sequence[Weights] | None,
    rounds: _Rounds,
    number: int,
) -> list[Trained]:
    """Train one of several stacks; one that ends early holds up no one's count of rounds."""
    rounds.go_on()
    done = partial(rounds.done, number)
    try:
        trained = train_stack(stack, plan, begin, done)
    except BaseException:  # before this thread takes up another stack
        rounds.stop()
        raise
    done(plan.rounds)
    return trained


def _raise_failures(ended: Iterable[Future[list[Trained]]]) -> None:
    """Raise what ended a stack; that others were stopped because of it is no reason to name."""
    for future in ended:
        if not isinstance(future.exception(), CancelledError):
            future.result()


class _Rounds:
    """Counts a round as done when the stacks have done it on average, and can stop all stacks."""

    def __init__(self, stacks: int, on_round: OnRound | None) -> None:
        self._done = [0] * stacks
        self._reported = 0
        self._on_round = on_round
        self._lock = Lock()
        self._stopped = False

    def stop(self) -> None:
        """Let every stack end after the round that it is in."""
        self._stopped = True

    def go_on(self) -> None:
        """Raise if all are to stop."""
        if self._stopped:
            raise CancelledError

    def done(self, stack: int, rounds: int) -> None:
        """A stack calls this after each of its rounds."""
        with self._lock:
            self.go_on()
            self._done[stack] = rounds
            done = sum(self._done) // len(self._done)
            if done > self._reported:
                self._reported = done
                try:
                    if self._on_round is not None:
                        self._on_round(self._reported)
                except BaseException:  # before another stack reports a round
                    self._stopped = True
                    raise


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use so many threads for one product, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
