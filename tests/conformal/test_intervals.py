import numpy as np
import pytest
from scipy.stats import betabinom

from fedcover.conformal import beta_binomial_interval
from fedcover.errors import UsageError


@pytest.mark.parametrize(("n", "m", "rank"), [(99, 50, 90), (1000, 1001, 901), (20, 7, 13.5)])
def test_one_split_has_scipys_quantiles(n, m, rank):
    law = betabinom(m, rank, n + 1 - rank)
    low, high = beta_binomial_interval([n], [m], [rank])
    assert (low * m, high * m) == pytest.approx((law.ppf(0.025), law.ppf(0.975)))
    assert law.cdf(low * m - 1) <= 0.025
    assert law.sf(high * m) <= 0.025


def test_several_splits_are_the_convolution_of_their_laws():
    splits = [(99, 40, 90), (80, 55, 73)]
    mass = np.convolve(*(betabinom(m, r, n + 1 - r).pmf(np.arange(m + 1)) for n, m, r in splits))
    reached = np.cumsum(mass)
    low, high = beta_binomial_interval(*zip(*splits, strict=True), confidence=0.9)
    assert low * 95 == pytest.approx(np.searchsorted(reached, 0.05))
    assert high * 95 == pytest.approx(np.searchsorted(reached, 0.95))


def test_large_splits_keep_their_tails():
    law = betabinom(8000, 7200.9, 800.1)
    low, high = beta_binomial_interval([8000], [8000], [7200.9])
    assert (low * 8000, high * 8000) == pytest.approx((law.ppf(0.025), law.ppf(0.975)))


def test_a_rank_beyond_the_last_score_covers_everything():
    assert beta_binomial_interval([9], [30], [10]) == (1.0, 1.0)


@pytest.mark.parametrize(
    "wrong", [([9], [0], [5]), ([9, 9], [5], [5]), ([9], [5], [0]), ([9], [-5], [5])]
)
def test_impossible_splits_are_refused(wrong):
    with pytest.raises(UsageError, match="one number for each split"):
        beta_binomial_interval(*wrong)


def test_a_confidence_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"confidence is 1\.5"):
        beta_binomial_interval([9], [5], [5], confidence=1.5)
