"""ε of private training against dp-accounting, an accountant independent of Opacus."""

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.pld import PLDAccountant

from fedcover import privacy
from fedcover.config import Privacy
from fedcover.privacy import spending


def theirs(sigma: float, delta: float, rate: float, steps: int, interval: float = 1e-3) -> float:
    step = PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
    accountant = PLDAccountant(value_discretization_interval=interval)
    accountant.compose(SelfComposedDpEvent(step, steps))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("epsilon", [1, 2, 5, 10, 25, 100])
def test_epsilon_agrees(epsilon):
    spent = spending(Privacy(epsilon=epsilon))
    other = theirs(spent.noise_multiplier, spent.delta, spent.sample_rate, spent.steps)
    assert spent.epsilon == pytest.approx(other, rel=0.05)
    assert spent.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [0.1, 300, 700, 750, 1000])
@pytest.mark.parametrize("case", [(1e-5, 0.25, 200), (1e-6, 0.02, 50)], ids=["many", "few"])
def test_noise_is_found_in_a_few_steps_for_any_epsilon(epsilon, case):
    """Also beyond what the settings allow, where the finer accountant overflows."""
    privacy._epsilon.cache_clear()
    sigma = privacy._noise_multiplier(epsilon, *case)
    assert privacy._epsilon.cache_info().currsize <= 25
    spent = privacy._epsilon(sigma, *case)
    # Where Rényi's bound stands in, more noise than needed is taken, never less.
    assert (0.99 if epsilon <= 700 else 0.7) * epsilon < spent <= epsilon
    other = theirs(sigma, *case, interval=max(1e-4, 1e-5 * epsilon))
    assert 0.8 * spent < other <= 1.01 * epsilon


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 3, 8, 20, 50, 100])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8, 1e-12])
def test_the_noise_of_one_sum_is_what_is_needed_and_no_more(epsilon, delta):
    """Of +neighbours: one Gaussian mechanism."""
    sigma = privacy.gaussian_multiplier(epsilon, delta)
    assert get_epsilon_gaussian(sigma, delta) == pytest.approx(epsilon, rel=1e-6)
    assert get_sigma_gaussian(epsilon, delta) == pytest.approx(sigma, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (1, 1e-5), (8, 1e-6)])
def test_so_says_its_distribution_of_privacy_loss(epsilon, delta):
    sigma = privacy.gaussian_multiplier(epsilon, delta)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(GaussianDpEvent(sigma))
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=2e-3)


@pytest.mark.parametrize("cap", [2, 5, 10])
def test_a_cap_composes_as_one_longer_vector(cap):
    """A node in ``cap`` sums, each with √cap times the noise, is one mechanism's worth."""
    sigma = privacy.gaussian_multiplier(1.0, 1e-5) * cap**0.5
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(sigma), cap))
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=5e-3)
