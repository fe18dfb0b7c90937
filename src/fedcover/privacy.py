r"""What private training costs: ε of the Poisson-subsampled Gaussian mechanism.

Each of ``steps`` steps takes every training node with probability ``sample_rate``, sums gradients
clipped to norm ``max_grad_norm``, and adds normal noise of ``noise_multiplier · max_grad_norm``.
All of these are public constants: none depends on a client's data, not even on how many nodes it
has. So every client spends the same, known before it starts. Neighbouring data sets differ by one
training node added or removed.

Opacus issue 819: ``PrivacyEngine`` derives the sampling rate and the divisor of the noisy sum
from the length of the data set. Two neighbours then divide the *noise* by different numbers, and
over 10⁵ weights the noise's size gives away which one it was, at any ε. We therefore set the rate
ourselves and never divide: the sum itself goes to Adam, which is indifferent to its scale.
"""

import math
import warnings
from dataclasses import dataclass
from functools import cache

from fedcover.config import Privacy
from fedcover.errors import UsageError, require

MOST_NOISE = 1e6  # a noise multiplier beyond which nothing is learned
ORDERS = [1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]  # of Rényi divergences; whole: quick


@dataclass(frozen=True)
class Spending:
    """One client's privacy cost, as it stands in ``run.json``."""

    epsilon: float
    delta: float
    noise_multiplier: float
    steps: int
    sample_rate: float
    prototypes: str
    covered: bool


def noise_multiplier(privacy: Privacy) -> float:
    """What was given, or the least noise with which all steps together stay within ε."""
    if privacy.noise is not None:
        return privacy.noise
    if privacy.epsilon is None or not privacy.active:
        return 0.0
    return _noise_multiplier(privacy.epsilon, privacy.delta, privacy.sample_rate, privacy.steps)


def spending(privacy: Privacy) -> Spending:
    """What each client spends; the accountant's word, not the wish."""
    return Spending(
        epsilon=epsilon_after(privacy, privacy.steps) if privacy.active else math.inf,
        delta=privacy.delta,
        noise_multiplier=noise_multiplier(privacy),
        steps=privacy.steps,
        sample_rate=privacy.sample_rate,
        prototypes=privacy.prototypes,
        covered=privacy.covered,
    )


def epsilon_after(privacy: Privacy, steps: int) -> float:
    """ε spent after some steps at this noise."""
    return _epsilon(noise_multiplier(privacy), privacy.delta, privacy.sample_rate, steps)


@cache
def gaussian_multiplier(epsilon: float, delta: float) -> float:
    r"""The least σ/Δ at which one Gaussian mechanism is (ε, δ)-private (Balle and Wang, 2018).

    .. math:: \Phi\Big(\frac{\Delta}{2\sigma} - \frac{\varepsilon\sigma}{\Delta}\Big)
        - e^{\varepsilon} \Phi\Big(-\frac{\Delta}{2\sigma}
        - \frac{\varepsilon\sigma}{\Delta}\Big) \le \delta
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    def excess(log_sigma: float) -> float:
        half, far = 0.5 / math.exp(log_sigma), epsilon * math.exp(log_sigma)
        # As a logarithm the second term neither overflows nor loses its digits.
        return float(norm.cdf(half - far) - math.exp(epsilon + norm.logcdf(-half - far))) - delta

    return math.exp(brentq(excess, math.log(1e-3), math.log(1e6), xtol=1e-12))


@cache
def _noise_multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The σ that spends between 99 % and 100 % of ε, by bisection.

    Opacus' ``get_noise_multiplier`` does the same, but takes minutes where ε is large.
    """

    def spent(sigma: float) -> float:
        return _epsilon(sigma, delta, rate, steps)

    low, high = 0.0, 20.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
        if high > MOST_NOISE:
            raise UsageError(
                f"epsilon is {epsilon}, but no noise makes {steps} steps spend so little."
            )
    # The bound on ε jumps where the finer accountant gives up: there σ itself must be near enough.
    while spent(high) < 0.99 * epsilon and high - low > 1e-3 * high:
        middle = (low + high) / 2
        if spent(middle) < epsilon:
            high = middle
        else:
            low = middle
    return high


@cache
def _epsilon(sigma: float, delta: float, rate: float, steps: int) -> float:
    """Opacus' upper bound from composed privacy-loss distributions (Gopi et al., 2021).

    Its mesh grows with ε, which is first bounded by Rényi divergences: a finer one would only take
    longer. Above ε = 700 the composition overflows, and the first bound stands.
    """
    require("privacy", "Differential privacy")
    from opacus.accountants import PRVAccountant, RDPAccountant

    renyi, composed = RDPAccountant(), PRVAccountant()
    renyi.history = composed.history = [(sigma, rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # log 0 at the edge of the distribution
        warnings.simplefilter("ignore", UserWarning)  # on orders of RDP, which is a rough bound
        bound = float(renyi.get_epsilon(delta, alphas=ORDERS))
        fine = float(composed.get_epsilon(delta, eps_error=max(0.01, bound / 3000)))
    return fine if math.isfinite(fine) else bound
