"""A simulation: all parties of all seeds in this process, every core leads some seeds in step.

Threads that share one small product wait for each other after each of thousands of products, and
for milliseconds each time when the machine is busy; threads with repetitions of their own never
wait.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event, Lock
from typing import Any

import numpy as np
import torch

from fedcover.algorithm.requests import Conversation, Result
from fedcover.carriers.lockstep import Lockstep
from fedcover.carriers.loopback import Loopback
from fedcover.training.plan import Progress

LARGE = 10_000  # nodes from which a second thread pays within one product


class Stacked:
    """Carries the conversations of all repetitions."""

    def __init__(self, repetitions: Sequence[Loopback], *, alone: bool = False) -> None:
        """``alone``: large repetitions gain nothing from company, and one that is out of patience
        should not be carried along until the last one is."""
        self.repetitions = repetitions
        self._nodes = sum(len(party.data.y) for party in repetitions[0].parties)
        self._alone = alone and self._nodes >= LARGE

    def carry(
        self, talks: Sequence[Conversation[Result]], report: Progress | None = None
    ) -> list[Result]:
        """Lead one conversation for each repetition; what they return, in order."""
        cores, count = torch.get_num_threads(), len(talks)
        groups = count if self._alone else min(cores, count)
        members = [part.tolist() for part in np.array_split(np.arange(count), groups)]
        steps = _Steps(len(members), report)
        large = self._nodes * len(members[0]) >= LARGE

        def lead(group: int) -> dict[int, Any]:
            steps.go_on()
            try:
                own = {number: self.repetitions[number] for number in members[group]}
                carrier = Lockstep(own, steps.of(group))
                return carrier.carry({number: talks[number] for number in own})
            except BaseException:  # before this thread takes up another group
                steps.stopped.set()
                raise

        results: dict[int, Result] = {}
        with threads(max(cores // len(members), 1) if large else 1):
            if len(members) == 1:
                results = lead(0)
            else:
                with ThreadPoolExecutor(min(cores, len(members))) as pool:
                    futures = [pool.submit(lead, group) for group in range(len(members))]
                    try:
                        waiting = set(futures)
                        while waiting:
                            # Ctrl-C may reach any thread; the main one sees it when it wakes up.
                            ended, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                            for future in ended:  # that others were stopped is no reason
                                if not isinstance(future.exception(), CancelledError):
                                    future.result()
                    except BaseException:  # Ctrl-C, or one group failed: the others need not go on
                        steps.stopped.set()
                        pool.shutdown(wait=False, cancel_futures=True)
                        raise
                    for future in futures:
                        results |= future.result()
        return [results[number] for number in range(count)]


class _Steps:
    """Reports a step as done when the groups have done it on average, and can stop all groups."""

    def __init__(self, groups: int, report: Progress | None) -> None:
        self._groups, self._report = groups, report
        self._done: dict[str, dict[int, int]] = {}
        self._reported: dict[str, int] = {}
        self._lock = Lock()
        self.stopped = Event()  # every group ends after the step that it is in

    def go_on(self) -> None:
        """Raise if all are to stop."""
        if self.stopped.is_set():
            raise CancelledError

    def of(self, group: int) -> Progress:
        """What one group reports to."""

        def report(stage: str, done: int, total: int) -> None:
            with self._lock:
                self.go_on()
                self._done.setdefault(stage, {})[group] = done
                mean = sum(self._done[stage].values()) // self._groups
                if self._report is None or mean <= self._reported.get(stage, 0):
                    return
                self._reported[stage] = mean
                try:
                    self._report(stage, mean, total)
                except BaseException:  # before another group reports a step
                    self.stopped.set()
                    raise

        return report


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use so many threads for one product, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
