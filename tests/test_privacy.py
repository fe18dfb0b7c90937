"""ε asked and spent, and what the settings refuse."""

import sys
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from fedcover.config import Privacy
from fedcover.errors import UsageError, require
from fedcover.privacy import epsilon_after, gaussian_multiplier, noise_multiplier, spending


@pytest.mark.parametrize("epsilon", [1, 5])
def test_spending_stays_within_the_budget_and_uses_it(epsilon):
    spent = spending(Privacy(epsilon=epsilon))
    assert 0.98 * epsilon < spent.epsilon <= epsilon
    assert spent.covered
    assert set(asdict(spent)) == {
        *("epsilon", "delta", "noise_multiplier", "steps", "sample_rate", "prototypes", "covered")
    }


def test_more_privacy_takes_more_noise_and_fewer_steps_spend_less():
    strict, loose = Privacy(epsilon=1), Privacy(epsilon=5)
    assert noise_multiplier(strict) > 3 * noise_multiplier(loose)
    assert epsilon_after(loose, 50) < epsilon_after(loose, 100) < spending(loose).epsilon


def test_the_papers_variant_is_labelled_as_not_covered():
    assert not spending(Privacy(epsilon=5, prototypes="reconstructions")).covered


def test_infinite_epsilon_has_no_noise_and_covers_nothing():
    spent = spending(Privacy(epsilon=float("inf")))
    assert (spent.epsilon, spent.noise_multiplier, spent.covered) == (float("inf"), 0.0, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0),
        ("epsilon", float("nan")),
        ("delta", 1.0),
        ("prototypes", "posterior"),
        ("samples", 0),
        ("steps", 2.5),
        ("max_grad_norm", 0.0),
        ("lr", float("inf")),
        ("sample_rate", 0.0),
        ("density", 1.0),
    ],
)
def test_settings_refuse_what_cannot_be(name, value):
    with pytest.raises(UsageError, match=f"^{name} is "):
        Privacy(**({"epsilon": 1.0} | {name: value}))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
def test_the_noise_of_one_sum_by_the_definition_of_privacy(epsilon, delta):
    """The integral of max(0, p − e^ε q) over two normal densities a unit apart is δ."""
    sigma = gaussian_multiplier(epsilon, delta)
    at, step = np.linspace(-12 * sigma, 12 * sigma, 400_001, retstep=True)
    excess = stats.norm.pdf(at, 1, sigma) - np.exp(epsilon) * stats.norm.pdf(at, 0, sigma)
    assert np.maximum(excess, 0).sum() * step == pytest.approx(delta, rel=1e-4)


def test_a_sum_takes_more_noise_for_a_smaller_epsilon_or_delta():
    sigmas = [gaussian_multiplier(epsilon, 1e-5) for epsilon in (0.1, 0.5, 1, 5, 25, 100)]
    assert sigmas == sorted(sigmas, reverse=True)
    assert gaussian_multiplier(1, 1e-9) > gaussian_multiplier(1, 1e-6) > gaussian_multiplier(1, 0.1)
    # Below the classical bound, which holds for ε ≤ 1 alone.
    assert gaussian_multiplier(1, 1e-5) < np.sqrt(2 * np.log(1.25 / 1e-5))


def test_without_opacus_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(UsageError, match=r"pip install 'fedcover\[privacy\]'"):
        require("privacy", "Differential privacy")
