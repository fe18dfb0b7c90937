"""Successive halving (Jamieson & Talwalkar 2016) that keeps a time budget.

All candidates are tried briefly, the best third of them for three times as long, and so on. It
knows nothing of what it tries: a candidate is a number, and trying one gives a loss for each seed.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Losses = NDArray[np.float64]
Measure = Callable[[int, int], Losses]
"""``measure(candidate, rung)`` gives a loss for each seed, the same seeds for all candidates; it
may raise :class:`OutOfTime`."""
OnTrial = Callable[[int, int, int], None]  # called as on_trial(rung, done, total)
ETA = 3
RUNGS = 3


class OutOfTime(Exception):  # noqa: N818 (it is no error)
    """The budget is used up: the trial that is under way does not count."""


class Budget:
    """So many seconds from now on, by a clock that tests may replace."""

    def __init__(
        self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds, self._clock, self._began = seconds, clock, clock()

    @property
    def used(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._began

    def check(self) -> None:
        """Raise :class:`OutOfTime` if nothing is left."""
        if self.used >= self.seconds:
            raise OutOfTime


@dataclass(frozen=True)
class Trial:
    """One candidate on one rung."""

    candidate: int
    rung: int
    losses: Losses  # by seed
    seconds: float

    @property
    def loss(self) -> float:
        """The mean over seeds; infinite where a seed diverged."""
        mean = float(np.mean(self.losses))
        return mean if math.isfinite(mean) else math.inf


@dataclass
class Ladder:
    """What was tried, in the order in which it was."""

    trials: list[Trial] = field(default_factory=list)
    finished: bool = True  # False: time was up before all that was planned

    @property
    def deciding(self) -> int:
        """The highest rung where several were tried.

        Whoever is alone on a higher one, because nobody else was left or time was up, beat nobody
        there. If there is no such rung, the highest.
        """
        rungs = Counter(trial.rung for trial in self.trials)
        several = [rung for rung, trials in rungs.items() if trials > 1]
        return max(several or rungs, default=0)

    def best(self) -> Trial | None:
        """The lowest mean loss of the deciding rung, the first among equals; its last trial."""
        there = [trial for trial in self.trials if trial.rung == self.deciding]
        best = min(there, key=lambda trial: (trial.loss, trial.candidate), default=None)
        return None if best is None else self.last(best.candidate)

    def last(self, candidate: int) -> Trial | None:
        """A candidate's trial on its highest rung."""
        own = [trial for trial in self.trials if trial.candidate == candidate]
        return max(own, key=lambda trial: trial.rung, default=None)

    def gain(self, reference: int = 0) -> tuple[float, float] | None:
        """The best one's loss minus the reference's, paired by seed, and its standard error.

        None if the best is the reference, or the two have not been on one rung with several seeds.
        """
        best = self.best()
        if best is None or best.candidate == reference or len(best.losses) < 2:
            return None
        for other in self.trials:
            if (other.candidate, other.rung) == (reference, best.rung):
                difference = best.losses - other.losses
                error = difference.std(ddof=1) / math.sqrt(len(difference))
                return float(difference.mean()), float(error)
        return None


def halve(
    candidates: int,
    measure: Measure,
    budget: Budget | None = None,
    *,
    rungs: int = RUNGS,
    eta: int = ETA,
    carried: Collection[int] = (),
    on_trial: OnTrial | None = None,
) -> Ladder:
    """Try all candidates on rung 0, the best 1/eta of them on rung 1, and so on.

    ``carried`` are tried on every rung and before the others, so that there is something to compare
    with also where time is up. The rungs cost about the same, so no trial of rung r begins after
    (r + 1)/rungs of the budget; those that were not begun are out. On later rungs the most
    promising come first. Where a single candidate is left, it goes to the last rung at once.
    """
    budget, ladder, rung = budget or Budget(), Ladder(), 0
    waiting = sorted(range(candidates), key=lambda candidate: candidate not in carried)
    while True:
        measured: list[Trial] = []
        for done, candidate in enumerate(waiting):
            if budget.used >= budget.seconds * (rung + 1) / rungs:
                ladder.finished = False
                break
            began = budget.used
            try:
                losses = measure(candidate, rung)
            except OutOfTime:
                ladder.finished = False
                return ladder
            measured.append(Trial(candidate, rung, losses, budget.used - began))
            ladder.trials.append(measured[-1])
            if on_trial is not None:
                on_trial(rung, done + 1, len(waiting))
        if not measured or rung == rungs - 1:
            return ladder
        measured.sort(key=lambda trial: (trial.loss, trial.candidate))
        order = [trial.candidate for trial in measured]
        promising = order[: math.ceil(len(order) / eta)]
        waiting = [candidate for candidate in order if candidate in {*carried, *promising}]
        waiting.sort(key=lambda candidate: candidate not in carried)
        rung = rungs - 1 if len(waiting) == 1 else rung + 1
