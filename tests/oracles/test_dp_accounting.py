"""ε of private training against dp-accounting, an accountant independent of Opacus."""

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from fedcover.config import Privacy
from fedcover.privacy import spending


@pytest.mark.parametrize("epsilon", [1, 2, 5, 10, 25])
def test_epsilon_agrees(epsilon):
    spent = spending(Privacy(epsilon=epsilon))
    step = PoissonSampledDpEvent(spent.sample_rate, GaussianDpEvent(spent.noise_multiplier))
    theirs = PLDAccountant(value_discretization_interval=1e-3)
    theirs.compose(SelfComposedDpEvent(step, spent.steps))
    assert spent.epsilon == pytest.approx(theirs.get_epsilon(spent.delta), rel=0.05)
    assert spent.epsilon <= epsilon
