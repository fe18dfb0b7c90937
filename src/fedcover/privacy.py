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

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cache

from fedcover.errors import UsageError
from fedcover.extras import require

PROTOTYPES = ("prior", "reconstructions")
EPSILONS = (0.1, 100.0)  # where the accountant is quick and exact
NOISES = (0.3, 1000.0)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    r"""How private the prototypes of each client are to be.

    ``prototypes="prior"``: centres of decoded samples of the prior, a function of the private
    weights alone, so that ε covers all prototypes, for all M together. ``"reconstructions"``, the
    paper's: centres of reconstructed training nodes, which touch the data again: *not* covered.
    ``epsilon=inf`` trains without differential privacy.

    ``density`` is the share of ones among binary features as far as it is public: training starts
    there, since on a small client little more than noise is added to it. With Adam at ``lr``, noise
    alone moves each weight by about lr·√steps in all, 0.07: enough to learn from a strong gradient,
    too little to drown the start. More steps or another rate change hardly anything at equal ε.

    Sampling and noise come from generators seeded by (seed, client), so that results repeat: this
    is a simulation. Who knows or guesses the seed can remove the noise; a deployment needs a
    cryptographic generator, which torch does not have.

    In place of ``epsilon`` the ``noise`` multiplier can be given; ε is then what it costs.
    """

    epsilon: float | None = None
    noise: float | None = None
    delta: float = 1e-5
    prototypes: str = "prior"
    samples: int = 500
    max_grad_norm: float = 1.0
    steps: int = 200
    sample_rate: float = 0.25
    lr: float = 0.005
    density: float = 0.02

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise is None):
            raise UsageError("Privacy takes either epsilon or noise.")
        if self.epsilon is not None and not _in_range(self.epsilon, EPSILONS, or_inf=True):
            raise UsageError(
                f"epsilon is {self.epsilon:g}; it must lie between {EPSILONS[0]:g} and "
                f"{EPSILONS[1]:g}, or be inf for no differential privacy."
            )
        if self.noise is not None and not _in_range(self.noise, NOISES):
            raise UsageError(
                f"noise is {self.noise:g}; it must lie between {NOISES[0]:g} and {NOISES[1]:g}."
            )
        if self.prototypes not in PROTOTYPES:
            raise UsageError(
                f"prototypes is {self.prototypes!r}, but must be one of {', '.join(PROTOTYPES)}."
            )
        for name in ("samples", "steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}, but must be an integer of 1 or more.")
        for name in ("max_grad_norm", "lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} is {value!r}, but must be a positive number.")
        for name in ("delta", "sample_rate", "density"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise UsageError(f"{name} is {value}, but must lie strictly between 0 and 1.")

    @property
    def asked(self) -> str:
        """In words."""
        return f"epsilon {self.epsilon:g}" if self.noise is None else f"noise {self.noise:g}"

    @property
    def active(self) -> bool:
        """False for ε = ∞."""
        return self.noise is not None or (self.epsilon is not None and math.isfinite(self.epsilon))

    @property
    def covered(self) -> bool:
        """Whether the prototypes sent are inside ε."""
        return self.active and self.prototypes == "prior"

    @property
    def noise_multiplier(self) -> float:
        """What was given, or the least noise with which all steps together stay within ε."""
        if self.noise is not None:
            return self.noise
        if self.epsilon is None or not self.active:
            return 0.0
        return _noise_multiplier(self.epsilon, self.delta, self.sample_rate, self.steps)

    def spending(self) -> Spending:
        """What each client spends; the accountant's word, not the wish."""
        return Spending(
            epsilon=self.epsilon_after(self.steps) if self.active else math.inf,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
            sample_rate=self.sample_rate,
            prototypes=self.prototypes,
            covered=self.covered,
        )

    def epsilon_after(self, steps: int) -> float:
        """ε spent after some steps at this noise."""
        return _epsilon(self.noise_multiplier, self.delta, self.sample_rate, steps)


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


def _in_range(value: float, bounds: tuple[float, float], *, or_inf: bool = False) -> bool:
    return bounds[0] <= value <= bounds[1] or (or_inf and value == math.inf)


def require_opacus() -> None:
    """Say in a sentence what is missing."""
    require("privacy", "Differential privacy")


@cache
def _noise_multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The σ that spends between 99 % and 100 % of ε: secants on log ε against log σ."""
    target = math.log(0.995 * epsilon)
    at = math.log(rate * math.sqrt(steps) * max(4 / epsilon, 0.2))
    slope, before = -1.0, None
    for _ in range(50):
        spent = math.log(_epsilon(math.exp(at), delta, rate, steps))
        if math.log(0.99 * epsilon) <= spent <= math.log(epsilon):
            return math.exp(at)
        if before is not None and at != before[0]:
            # ε falls with σ, never slower than about 1/σ; noise in ε must not turn the sign.
            slope = min((spent - before[1]) / (at - before[0]), -0.5)
        before = (at, spent)
        at += (target - spent) / slope
    raise UsageError(f"epsilon is {epsilon}, but no noise makes {steps} steps spend just that.")


@cache
def _epsilon(sigma: float, delta: float, rate: float, steps: int) -> float:
    """Opacus' upper bound from composed privacy-loss distributions (Gopi et al., 2021)."""
    require_opacus()
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # log 0 at the edge of the distribution
        warnings.simplefilter("ignore", UserWarning)  # on orders of RDP, used for a rough bound
        return float(accountant.get_epsilon(delta))
