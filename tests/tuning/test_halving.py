"""Successive halving on objectives whose answers are known beforehand."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.tuning.halving import Budget, Ladder, OutOfTime, Trial, halve


def steps(ladder):
    return [(trial.rung, trial.candidate) for trial in ladder.trials]


def flat(losses):
    """An objective that does not depend on the rung."""
    return lambda candidate, _rung: np.array([losses[candidate]])


class Clock:
    """Time passes only when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_nine_candidates_by_hand():
    losses = [5, 3, 8, 1, 9, 2, 7, 6, 4]
    ladder = halve(9, flat(losses), rungs=3, eta=3)
    # The best three of nine are 3 (loss 1), 5 (2) and 1 (3); of these the best one is 3.
    assert steps(ladder) == [(0, c) for c in range(9)] + [(1, 3), (1, 5), (1, 1), (2, 3)]
    assert ladder.best().candidate == 3
    assert ladder.best().rung == 2
    assert ladder.finished


def test_a_rung_can_turn_the_order_around():
    # Candidate 0 learns fast and stays there; 2 begins slowly and is best in the end.
    by_rung = {0: [1.0, 9.0, 1.2, 1.1], 1: [1.0, 9.0, 0.5, 0.7]}
    ladder = halve(4, lambda c, r: np.array([by_rung[r][c]]), rungs=2, eta=2)
    assert steps(ladder)[4:] == [(1, 0), (1, 3)]  # 2 is out too early: the known price of halving
    assert ladder.best().candidate == 3
    ladder = halve(4, lambda c, r: np.array([by_rung[r][c]]), rungs=2, eta=2, carried=(2,))
    assert steps(ladder) == [(0, 2), (0, 0), (0, 1), (0, 3), (1, 2), (1, 0), (1, 3)]
    assert ladder.best().candidate == 2


def test_carried_candidates_are_on_every_rung_and_count_once():
    ladder = halve(9, flat([9, *range(8)]), carried=(0,))
    assert steps(ladder)[9:] == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2)]
    ladder = halve(3, flat([0, 1, 2]), carried=(0,))
    assert steps(ladder)[3:] == [(2, 0)]


def test_the_mean_over_seeds_decides_and_what_diverged_is_last():
    losses = [np.array([1.0, 5.0]), np.array([2.5, 2.5]), np.array([0.0, math.nan])]
    ladder = halve(3, lambda c, _r: losses[c], rungs=2)
    assert ladder.best().candidate == 1
    assert [trial.loss for trial in ladder.trials[:3]] == [3.0, 2.5, math.inf]


def test_among_equals_the_first_and_a_single_one_goes_to_the_top():
    assert halve(4, flat([1, 1, 1, 1])).best().candidate == 0
    assert steps(halve(1, flat([1]))) == [(0, 0), (2, 0)]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 4), st.integers(2, 4))
def test_an_objective_that_no_rung_changes_is_minimised(losses, rungs, eta):
    ladder = halve(len(losses), flat(losses), rungs=rungs, eta=eta)
    assert ladder.best().candidate == int(np.argmin(losses))
    assert ladder.best().rung == rungs - 1
    counts = np.bincount([trial.rung for trial in ladder.trials], minlength=rungs)
    assert counts[0] == len(losses)
    assert all(later <= -(-before // eta) for before, later in pairwise(counts) if before)


def test_the_budget_is_kept_by_a_clock():
    clock = Clock()

    def measure(candidate, rung):
        clock.now += 10 * 3**rung
        return np.array([candidate])

    # 90 s: rung 0 may begin trials until 30 s (three of nine), rung 1 until 60, rung 2 until 90.
    ladder = halve(9, measure, Budget(90, clock))
    assert steps(ladder) == [(0, 0), (0, 1), (0, 2), (2, 0)]
    assert [trial.seconds for trial in ladder.trials] == [10, 10, 10, 90]
    assert not ladder.finished
    clock.now = 100.0
    ladder = halve(9, measure, Budget(10_000, clock))
    assert ladder.finished
    assert clock.now - 100 == 9 * 10 + 3 * 30 + 90


def test_a_trial_that_runs_out_of_time_does_not_count():
    clock = Clock()
    budget = Budget(55, clock)

    def measure(candidate, rung):
        for _ in range(10 * 3**rung):
            budget.check()
            clock.now += 1
        return np.array([-candidate])

    ladder = halve(3, measure, budget, rungs=2)
    # Rung 0 begins trials until 27.5 s: all three. The best, 2, has 25 of its 30 s left.
    assert steps(ladder) == [(0, 0), (0, 1), (0, 2)]
    assert ladder.best().candidate == 2
    assert clock.now - 100 == 55
    assert not ladder.finished


def test_time_cuts_the_carried_last():
    clock = Clock()

    def measure(candidate, rung):
        clock.now += 10 * 3**rung
        return np.array([9.0, 9.5]) if candidate == 0 else np.array([candidate, candidate + 0.1])

    # 150 s: five of nine until 50 s; of 0 and the best two, the rung until 100 s begins 0 and 1,
    # which is more promising than 2; the last one begins at 110 s with 0, and nothing is left.
    ladder = halve(9, measure, Budget(150, clock), carried=(0,))
    assert steps(ladder)[5:] == [(1, 0), (1, 1), (2, 0)]
    assert not ladder.finished
    # Differences on rung 1, where the two met: 1 − 9 and 1.1 − 9.5, mean −8.2 ± 0.2.
    assert (ladder.best().candidate, ladder.best().rung) == (1, 1)
    assert ladder.gain() == pytest.approx((-8.2, 0.2))


def test_who_is_alone_on_a_rung_has_beaten_nobody_there():
    given, other = np.array([1.0, 2.0, 3.0]), np.array([0.9, 1.8, 2.7])
    trials = [Trial(0, 1, given, 1), Trial(4, 1, other, 1), Trial(0, 2, given / 2, 1)]
    ladder = Ladder(trials, finished=False)
    assert (ladder.deciding, ladder.best()) == (1, trials[1])
    assert ladder.gain() == pytest.approx((-0.2, 0.1 / math.sqrt(3)))  # on rung 1, as above
    # Where it was the best of several below, its last trial is the one that counts.
    ladder = Ladder([trials[0], Trial(4, 1, 2 * other, 1), trials[2]])
    assert (ladder.deciding, ladder.best()) == (1, trials[2])
    assert Ladder().deciding == 0


@given(
    st.lists(st.floats(0.1, 1), min_size=1, max_size=30),
    st.floats(0, 300),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_whatever_the_time_the_choice_was_compared_with_what_is_carried(
    losses, seconds, interrupted, seed
):
    clock, rng = Clock(), np.random.default_rng(seed)
    budget = Budget(seconds, clock)

    def measure(candidate, rung):
        for _ in range(3**rung):
            if interrupted:
                budget.check()
            clock.now += 1
        return losses[candidate] + rng.normal(0, 0.1, 3)

    ladder = halve(len(losses), measure, budget, carried=(0,))
    best = ladder.best()
    assert (best is None) == (not ladder.trials)
    assert best is None or best.candidate == 0 or ladder.gain() is not None


def test_no_time_at_all():
    ladder = halve(3, flat([1, 2, 3]), Budget(0, Clock()))
    assert ladder.trials == []
    assert ladder.best() is None
    assert not ladder.finished
    with pytest.raises(OutOfTime):
        Budget(0, Clock()).check()


def test_the_last_trial_of_a_candidate():
    ladder = Ladder([Trial(0, 0, np.array([1.0]), 1), Trial(0, 2, np.array([3.0]), 1)])
    assert ladder.last(0).rung == 2
    assert ladder.last(1) is None


def test_progress_counts_each_rung():
    seen = []
    halve(4, flat([1, 2, 3, 4]), rungs=2, eta=2, on_trial=lambda *step: seen.append(step))
    assert seen == [(0, 1, 4), (0, 2, 4), (0, 3, 4), (0, 4, 4), (1, 1, 2), (1, 2, 2)]


def test_the_gain_is_paired():
    given, other = np.array([1.0, 2.0, 3.0]), np.array([0.9, 1.8, 2.7])
    ladder = Ladder([Trial(0, 1, given, 1), Trial(4, 1, other, 1)])
    # Differences −0.1, −0.2, −0.3: mean −0.2, sd 0.1, standard error 0.1/√3.
    assert ladder.gain() == pytest.approx((-0.2, 0.1 / math.sqrt(3)))
    assert ladder.gain(4) is None  # it is the best itself
    assert ladder.gain(3) is None  # never tried
    assert Ladder([Trial(0, 0, given, 1), Trial(4, 1, other, 1)]).gain() is None
    assert Ladder([Trial(0, 1, given[:1], 1), Trial(4, 1, other[:1], 1)]).gain() is None
    assert Ladder().gain() is None
