"""What Theorem 1 promises, to hold measured coverage against (docs/guarantee.md)."""

from collections.abc import Sequence
from math import sqrt

from fedcover.conformal.checks import Shares, check_alpha, check_shares
from fedcover.conformal.order import exact_rank


def coverage_band(alpha: float, n: int, clients: int = 1) -> tuple[float, float]:
    """Theorem 1's band for the expected coverage: 1−α and 1−α+K/(N+K).

    The upper end supposes scores without ties; the lower one always holds.
    """
    level = 1.0 - check_alpha(alpha)
    return level, level + clients / (n + clients)


def mixture_band(alpha: float, n: Sequence[int], shares: Shares) -> tuple[float, float]:
    """The band of the rule ``mixture``: 1−α and 1−α+Σ_k p_k/(n_k+1), for n_k scores at client k.

    It is for the expected coverage of a test node that is client k's with probability p_k. The
    upper end supposes scores without ties. For Theorem 1's shares it is Theorem 1's band.
    """
    level = 1.0 - check_alpha(alpha)
    parts = check_shares(shares, len(n))
    return level, level + float(sum(p / (int(m) + 1) for p, m in zip(parts, n, strict=True)))


def beta_binomial(alpha: float, n: int, m: int) -> tuple[float, float]:
    """Mean and standard deviation of the empirical coverage over m test nodes after n calibration.

    For one client, exchangeable scores without ties, rank r = ⌈(1−α)(n+1)⌉: the number covered is
    BetaBinomial(m, r, n+1−r). If r > n, q̂ is +∞ and coverage is 1 without spread.
    """
    rank = exact_rank(alpha, n)
    if rank > n:
        return 1.0, 0.0
    a, b = rank, n + 1 - rank
    total = a + b
    variance = a * b * (total + m) / (m * total**2 * (total + 1))
    return a / total, sqrt(variance)
