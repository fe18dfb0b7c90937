"""The theorems by counting: every choice of test node in small federations, in fractions.

Each client has a bag of n_k + 1 scores, and each member of a bag is the test score with the same
probability, independently of the other clients: that is all the theorems suppose.
"""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.conformal import calibrate
from fedcover.conformal.targets import Terms, exact, level_of

ALPHAS = (0.1, 0.2, 0.25, 0.3, 0.5, 0.6, 0.75, 0.9)


def found(rest, alpha, shares):
    return calibrate(rest, alpha, shares=shares).q_hat


def without_the_extra(rest, alpha, shares):
    """The rule with max v left out: not valid."""
    total = sum(shares)
    for q in sorted({score for scores in rest for score in scores}):
        reached = sum(
            Fraction(p, total * len(scores)) * sum(s <= q for s in scores)
            for p, scores in zip(shares, rest, strict=True)
        )
        if reached >= level_of(alpha):
            return q
    return float("inf")


def coverage(bags, shares, alpha, threshold=found):
    """The expected coverage of a node that is client k's with its share."""
    hits, choices = Fraction(0), list(product(*(range(len(bag)) for bag in bags)))
    for choice in choices:
        rest = [bag[:i] + bag[i + 1 :] for bag, i in zip(bags, choice, strict=True)]
        q_hat = threshold(rest, alpha, shares)
        tests = (bag[i] for bag, i in zip(bags, choice, strict=True))
        hits += sum(p for p, test in zip(shares, tests, strict=True) if test <= q_hat)
    return hits / sum(shares) / len(choices)


def upper_end(bags, shares, alpha):
    """1 − α + 2·max v, or what the other way gives if it asks for less; none where q̂ is
    infinite."""
    n = [len(bag) - 1 for bag in bags]
    if not exact(alpha, n, Terms(shares)).reached(n):
        return Fraction(2)
    held = [(Fraction(p, sum(shares)), size) for p, size in zip(shares, n, strict=True) if p]
    most, smoothed = max(p / size for p, size in held), [p / (size + 1) for p, size in held]
    slack = 2 * most
    if sum(smoothed) < most:
        slack = max(smoothed) + (sum(smoothed) if len(held) > 1 else 0)
    return level_of(alpha) + slack


def patterns(sizes):
    """Bags of these sizes: apart in either order, interleaved, and with ties."""
    bags, start = [], 0
    for size in sizes:
        bags.append([float(start + i) for i in range(size)])
        start += size
    yield bags, True
    yield [[start - s for s in bag] for bag in bags], True
    step = len(sizes)
    yield [[float(i * step + k) for i in range(size)] for k, size in enumerate(sizes)], True
    yield [[float(i % 2) for i in range(size)] for size in sizes], False
    yield [[float(i // 2) for i in range(size)] for size in sizes], False
    yield [[1.0] * size for size in sizes], False


SIZES = [(2,), (4,), (2, 2), (2, 4), (5, 2), (3, 3), (2, 2, 2), (2, 3, 4), (5, 2, 3)]


@pytest.mark.parametrize("sizes", SIZES)
def test_every_choice_of_test_node_over_small_federations(sizes):
    natural = [size - 1 for size in sizes]
    spreads = {tuple(natural), (1,) * len(sizes), tuple(range(1, len(sizes) + 1))}
    spreads |= {(9, *[1] * (len(sizes) - 1)), (*[0] * (len(sizes) - 1), 3)}
    spreads |= {(*[1] * (len(sizes) - 1), 40)}  # nearly one client: p_k/(n_k + 1) asks for less
    for bags, distinct in patterns(sizes):
        for shares in sorted(spreads):
            for alpha in ALPHAS:
                covers = coverage(bags, shares, alpha)
                assert covers >= level_of(alpha), (bags, shares, alpha)
                if distinct:
                    assert covers <= upper_end(bags, shares, alpha), (bags, shares, alpha)


@st.composite
def federations(draw, *, distinct):
    """Up to three clients' n_k + 1 scores each, and whole shares."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    limit, total = 30 if distinct else 3, sum(sizes)
    drawn = draw(st.lists(st.integers(0, limit), min_size=total, max_size=total, unique=distinct))
    bags = [[float(drawn.pop()) for _ in range(size)] for size in sizes]
    shares = [draw(st.integers(0, 9)) for _ in sizes[1:]] + [draw(st.integers(1, 9))]
    return bags, shares


@settings(max_examples=150, deadline=None)
@given(federations(distinct=True), st.sampled_from(ALPHAS))
def test_coverage_lies_between_both_ends_without_ties(drawn, alpha):
    bags, shares = drawn
    assert level_of(alpha) <= coverage(bags, shares, alpha) <= upper_end(bags, shares, alpha)


@settings(max_examples=150, deadline=None)
@given(federations(distinct=False), st.sampled_from(ALPHAS))
def test_ties_leave_the_lower_end_alone(drawn, alpha):
    assert coverage(*drawn, alpha) >= level_of(alpha)


def test_without_the_extra_weight_the_lower_end_breaks():
    # One client lies wholly above the other: counting must find what is missing.
    bags = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert coverage(bags, [1, 1], 0.25, without_the_extra) < level_of(0.25)
    assert coverage(bags, [1, 1], 0.25) >= level_of(0.25)


def test_theorem_1_over_every_choice_of_test_node():
    def threshold(rest, alpha, _shares):
        return calibrate(rest, alpha, "theorem1").q_hat

    for sizes in ((2,), (3, 2), (2, 2, 3)):
        for bags, distinct in patterns(sizes):
            for alpha in ALPHAS:
                covers = coverage(bags, list(sizes), alpha, threshold)  # n_k + 1
                assert covers >= level_of(alpha)
                if distinct:
                    assert covers <= level_of(alpha) + Fraction(len(sizes), sum(sizes))


def test_nearly_one_client_is_calibrated_nearly_as_one():
    n, terms = [10, 10], Terms((95, 5))
    assert exact(0.093, n, terms).reached(n)  # 1 − α + max v would be above 1
    assert exact(0.1, [9, 100], Terms((999, 1))).reached([9, 100])
    assert exact(0.1, [9], Terms((1,))) == exact(0.1, [9])
