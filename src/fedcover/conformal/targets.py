r"""What a threshold must reach: one weighted count for every rule that finds an order statistic.

Client k has :math:`n_k` calibration scores, :math:`c_k(q)` of them at most q. A rule gives weights
and a target, whole numbers that depend on the :math:`n_k` and the clients' shares alone:

.. math:: \hat q = \min\{q : \textstyle\sum_k w_k\, c_k(q) \ge t\}, \quad +\infty \text{ if none}

The proofs are in ``docs/guarantee.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

from fedcover.conformal.checks import Shares, check_alpha, check_confidence, check_shares
from fedcover.conformal.confidence import binomial_rank, worst_case_reach


@dataclass(frozen=True)
class Terms:
    """For whom a level is promised, and how firmly.

    ``shares``: a node that is asked about is client k's with probability p_k, numbers of any common
    scale that must not come from the scores; None: in proportion to the calibration scores n_k.
    ``confidence``: how sure it is that the calibration scores at hand give the level; None: the
    level holds on average over calibration sets.
    """

    shares: Shares | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        if self.confidence is not None:
            check_confidence(self.confidence)


NO_TERMS = Terms()


@dataclass(frozen=True)
class Target:
    """The weights w_k and the target t of a rule.

    ``slack``: without ties the expected coverage lies below 1 − α + slack; None: no upper end.
    ``unheard`` is the share of clients without calibration scores, which counts as never covered.
    """

    weights: tuple[int, ...]
    reach: int
    slack: float | None = None
    unheard: float = 0.0

    @property
    def rank(self) -> int:
        """The rank among all scores, where they all weigh the same; else 0."""
        return self.reach if all(weight == 1 for weight in self.weights) else 0

    def reached(self, n: Sequence[int]) -> bool:
        """Whether all scores together reach it; if not, q̂ is +∞."""
        return self.total(n) >= self.reach

    def total(self, n: Sequence[int]) -> int:
        """What all scores weigh together."""
        return sum(weight * size for weight, size in zip(self.weights, n, strict=True))


def level_of(alpha: float) -> Fraction:
    """1 − α; alpha is the simplest fraction within 1e-12: 0.1 and 1 − 0.9 both mean one tenth."""
    return 1 - Fraction(check_alpha(alpha)).limit_denominator(10**12)


def exact_rank(alpha: float, n: int, clients: int = 1) -> int:
    """⌈(1−α)(n + clients)⌉, at least 1: 0.18 and 150 give 123, where floats give 124."""
    return max(1, ceil(level_of(alpha) * (int(n) + int(clients))))


def theorem1(alpha: float, n: Sequence[int], _terms: Terms = NO_TERMS) -> Target:
    """The paper's Theorem 1: rank ⌈(1−α)(N+K)⌉ of all scores.

    K counts every client, also one without calibration scores.
    """
    total = sum(n) + len(n)
    return Target((1,) * len(n), exact_rank(alpha, total, 0), len(n) / max(total, 1))


def pooled(alpha: float, n: Sequence[int], _terms: Terms = NO_TERMS) -> Target:
    """The rank of one owner of all scores, ⌈(1−α)(N+1)⌉; no guarantee where clients differ."""
    return Target((1,) * len(n), exact_rank(alpha, sum(n)))


def exact(alpha: float, n: Sequence[int], terms: Terms = NO_TERMS) -> Target:
    r"""The sharper rule: with :math:`v_k = p_k/n_k`,

    .. math:: \textstyle\sum_k v_k\, c_k(\hat q) \ge 1 - \alpha + \max_k v_k

    For shares in proportion to n_k that is rank ⌈(1−α)N⌉ + 1, whatever K is: at most Theorem 1's
    where (1 − α)K ≥ 1. Where :func:`share_weights` says so, it is instead the weighted quantile

    .. math:: \textstyle\sum_k \frac{p_k}{n_k + 1}\, c_k(\hat q) \ge 1 - \alpha

    which for one client alone is the classical rank ⌈(1−α)(n+1)⌉.
    """
    sizes = [int(size) for size in n]
    if not any(sizes):
        return Target((1,) * len(sizes), 1)
    p = check_shares(sizes if terms.shares is None else terms.shares, len(sizes))
    level = level_of(alpha)
    unheard = float(sum(share for share, size in zip(p, sizes, strict=True) if size == 0))
    if terms.confidence is not None:
        return _confident(level, sizes, p, terms.confidence, unheard)
    weights, scale, extra = share_weights(sizes, p)
    heard = [weight for weight, size in zip(weights, sizes, strict=True) if weight and size]
    more = extra or (sum(heard) if len(heard) > 1 else 0)
    slack = (max(weights) + more) / scale
    return Target(weights, max(1, ceil(level * scale) + extra), slack, unheard)


def share_weights(
    n: Sequence[int], shares: Shares | None = None
) -> tuple[tuple[int, ...], int, int]:
    """The rule ``exact`` in whole numbers: w_k, the scale s and the extra x, so that the target of
    any α is (1 − α)s + x; v_k = w_k/s.

    Both ways are valid. The one is taken that asks for less beyond 1 − α: max v_k, or the sum of
    p_k/(n_k + 1). Counts decide, not scores.
    """
    if not any(n):
        return (1,) * len(n), 1, 0
    p = check_shares(n if shares is None else shares, len(n))
    own, plus_one = _by_score(p, n), _by_score(p, n, more=1)
    if sum(v for v, size in zip(plus_one, n, strict=True) if size) < max(own):
        return *_whole(plus_one)[:2], 0
    weights, scale, _ = _whole(own)
    return weights, scale, max(weights)


def _by_score(p: Sequence[Fraction], n: Sequence[int], more: int = 0) -> list[Fraction]:
    """p_k/(n_k + more). A client without scores weighs as the heaviest: it makes no difference."""
    pairs = list(zip(p, n, strict=True))
    most = max(share / (size + more) for share, size in pairs if size)
    return [share / (size + more) if size else most for share, size in pairs]


def _confident(
    level: Fraction, n: list[int], p: list[Fraction], confidence: float, unheard: float
) -> Target:
    """Of two valid ways the one that asks for fewer scores; counts decide, not scores.

    Either all scores weigh the same, which is exact for shares in proportion to n_k, at a level
    that is raised by how far p is from these; or each client weighs by its share.
    """
    total, risk = sum(n), 1 - confidence
    apart = sum(
        (max(Fraction(size, total) - share, Fraction(0)) for share, size in zip(p, n, strict=True)),
        Fraction(0),
    )
    rank = binomial_rank(total, level + apart, risk)
    alike = Target((1,) * len(n), rank, None, unheard)
    if apart == 0 or unheard == 1:  # where nobody asked about has scores, no rank is enough
        return alike
    weights, scale, v = _whole(_by_score(p, n))
    reach = worst_case_reach(tuple(map(float, v)), tuple(n), float(level), risk)
    own = Target(weights, max(1, ceil(Fraction(reach) * scale)), None, unheard)
    return alike if Fraction(rank, total) <= Fraction(own.reach, own.total(n)) else own


def _whole(v: list[Fraction]) -> tuple[tuple[int, ...], int, list[Fraction]]:
    """Whole numbers in the same proportions and their scale, so that sums are exact."""
    scale = lcm(*(weight.denominator for weight in v))
    return tuple(int(weight * scale) for weight in v), scale, v
