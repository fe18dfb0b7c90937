"""How many scores a promise with confidence asks for."""

from fractions import Fraction
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedcover.conformal import Terms, calibrate
from fedcover.conformal.confidence import binomial_rank, binomial_tail, worst_case_reach
from fedcover.conformal.targets import exact
from fedcover.errors import UsageError


@pytest.mark.parametrize(("n", "level"), [(1, 0.5), (50, 0.9), (991, 0.95), (20_000, 0.999)])
def test_the_tail_is_scipys(n, level):
    expected = stats.binom.sf(np.arange(-1, n + 1), n, level)
    assert binomial_tail(n, level) == pytest.approx(expected, abs=1e-11)


@given(st.integers(1, 3000), st.integers(1, 999), st.sampled_from([0.5, 0.1, 0.05, 0.001]))
def test_the_rank_is_the_least_that_hoeffding_allows(n, thousandths, risk):
    level = Fraction(thousandths, 1000)
    rank = binomial_rank(n, level, risk)
    mean = -(-n * thousandths // 1000)
    assert rank > mean
    if rank <= n:
        assert stats.binom.sf(rank - 1, n, float(level)) <= risk * (1 + 1e-9)
    if rank > mean + 1:
        assert stats.binom.sf(rank - 2, n, float(level)) > risk * (1 - 1e-9)


def weighted_tail(weights, n, chances, reach):
    """P(Σ v_k·Bin(n_k, f_k) ≥ reach), by going through all counts of two clients."""
    first, second = (
        stats.binom.pmf(np.arange(m + 1), m, f) for m, f in zip(n, chances, strict=True)
    )
    sums = np.add.outer(*(v * np.arange(m + 1) for v, m in zip(weights, n, strict=True)))
    return np.outer(first, second)[sums >= reach - 1e-12].sum()


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(3, 40), st.integers(3, 40)),
    st.floats(0.05, 0.95),
    st.sampled_from([0.5, 0.8, 0.9, 0.95]),
    st.sampled_from([0.3, 0.1, 0.02]),
)
def test_no_chances_of_the_clients_reach_it_too_often(n, share, level, risk):
    weights = (share / n[0], (1 - share) / n[1])
    reach = worst_case_reach(weights, n, level, risk)
    for first in np.linspace(0, 1, 21):
        second = (level - share * first) / (1 - share)
        if 0 <= second <= 1:
            assert weighted_tail(weights, n, (first, second), reach) <= risk


def test_equal_weights_give_chernoffs_bound():
    n, level, risk = 1000, 0.9, 0.1
    reach = worst_case_reach((1 / n, 1 / n), (400, 600), level, risk)
    divergence = reach * log(reach / level) + (1 - reach) * log((1 - reach) / (1 - level))
    assert n * divergence == pytest.approx(-log(risk), rel=1e-3)
    assert binomial_rank(n, Fraction(9, 10), risk) / n < reach  # the binomial is sharper


def test_what_cannot_be_reached_is_not():
    scores = [np.arange(20.0), np.arange(10.0)]
    assert calibrate(scores, 0.05, confidence=0.9).q_hat == np.inf
    assert calibrate(scores, 0.05, confidence=0.9, shares=[1, 9]).q_hat == np.inf
    assert "+inf" in calibrate(scores, 0.05, confidence=0.9).note


@given(st.lists(st.integers(1, 80), min_size=1, max_size=6), st.sampled_from([0.05, 0.1, 0.2]))
def test_more_confidence_asks_for_more(sizes, alpha):
    plain = exact(alpha, sizes)
    levels = [exact(alpha, sizes, Terms(None, c)) for c in (0.5, 0.8, 0.9, 0.99)]
    assert [t.reach for t in levels] == sorted(t.reach for t in levels)
    assert levels[0].reach >= plain.reach or len(sizes) == 1


@pytest.mark.parametrize("confidence", [0.4, 1.0, 1.5, float("nan")])
def test_a_confidence_out_of_range_is_refused(confidence):
    with pytest.raises(UsageError, match=r"confidence is .*; it must be at least 0.5 and below 1"):
        calibrate([[1.0]], 0.1, confidence=confidence)


SIZES = (20, 60, 150)
SHIFTS, SPREADS = np.array([0.0, 0.3, 1.0]), np.array([0.5, 1.5, 1.0])


@pytest.mark.parametrize("shares", [None, (2, 6, 16), (5, 1, 1)])
def test_nine_calibration_sets_of_ten_cover_over_unequal_clients(shares):
    rng = np.random.default_rng(0)
    p = np.array(shares or SIZES) / sum(shares or SIZES)
    held = {0.9: 0, None: 0}
    repeats = 1500
    for _ in range(repeats):
        scores = [a + b * rng.random(n) for n, a, b in zip(SIZES, SHIFTS, SPREADS, strict=True)]
        for confidence in held:
            q_hat = calibrate(scores, 0.1, shares=shares, confidence=confidence).q_hat
            held[confidence] += p @ np.clip((q_hat - SHIFTS) / SPREADS, 0, 1) >= 0.9
    error = 3 * np.sqrt(0.09 / repeats)
    assert held[0.9] / repeats >= 0.9 - error
    if shares != (5, 1, 1):  # there one client's weight is so large that exact has room enough
        assert 0.4 < held[None] / repeats < 0.8  # a mean over calibration sets, not each of them
