import numpy as np
import pytest
from scipy import stats

from fedcover.conformal import beta_binomial, coverage_band, exact_rank
from fedcover.errors import UsageError


def test_band_of_theorem_1():
    assert coverage_band(0.1, [19] * 10, "theorem1") == (0.9, 0.9 + 10 / 200)


def test_band_of_exact():
    assert coverage_band(0.1, [19] * 10) == pytest.approx((0.9, 0.9 + 2 / 190))
    assert coverage_band(0.2, [99]) == (0.8, 0.8 + 1 / 100)
    # Weights (1/4)/3 and (3/4)/5.
    assert coverage_band(0.1, [3, 5], shares=[1, 3]) == pytest.approx((0.9, 0.9 + 2 * 3 / 20))
    assert coverage_band(0.1, [3, 5], confidence=0.9) == (0.9, None)
    with pytest.raises(UsageError, match="shares has length 1"):
        coverage_band(0.1, [3, 5], shares=[1])
    with pytest.raises(UsageError, match="rule is 'average', which promises no coverage"):
        coverage_band(0.1, [3, 5], "average")


@pytest.mark.parametrize(("alpha", "n", "m"), [(0.1, 99, 50), (0.05, 200, 1), (0.5, 1, 7)])
def test_spread_equals_scipys_beta_binomial(alpha, n, m):
    rank = exact_rank(alpha, n)
    law = stats.betabinom(m, rank, n + 1 - rank)
    assert beta_binomial(alpha, n, m) == pytest.approx((law.mean() / m, law.std() / m))


def test_mean_lies_in_the_band_for_one_client():
    for n in range(20, 200, 7):
        low, high = coverage_band(0.1, [n])
        assert low <= beta_binomial(0.1, n, 10)[0] <= high


def test_rank_above_n_covers_all():
    assert beta_binomial(0.1, 8, 50) == (1.0, 0.0)


def test_spread_is_what_a_simulation_shows():
    rng = np.random.default_rng(0)
    n, m, alpha, repeats = 39, 60, 0.2, 20_000
    calibration = np.sort(rng.random((repeats, n)), axis=1)
    q_hat = calibration[:, exact_rank(alpha, n) - 1]
    shares = rng.binomial(m, q_hat) / m  # a uniform test score is covered with probability q̂
    mean, sd = beta_binomial(alpha, n, m)
    assert shares.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(repeats))
    assert shares.std() == pytest.approx(sd, rel=0.03)
