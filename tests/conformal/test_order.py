import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.conformal.order import exact_rank, from_order_key, mixture_weights, order_key
from fedcover.errors import DataError, UsageError

floats = st.floats(width=32, allow_nan=False)
TINY = float(np.finfo(np.float32).smallest_subnormal)


def test_keys_by_hand():
    scores = [-np.inf, -1.0, -TINY, -0.0, 0.0, TINY, 1.0, np.inf]
    assert [f"{k:08x}" for k in order_key(scores)] == [
        "007fffff",
        "407fffff",
        "7ffffffe",
        "80000000",
        "80000000",
        "80000001",
        "bf800000",
        "ff800000",
    ]


@given(floats, floats)
def test_keys_are_ordered_as_scores(a, b):
    key_a, key_b = order_key([a, b])
    assert (a < b, a == b, a > b) == (key_a < key_b, key_a == key_b, key_a > key_b)


@given(floats)
def test_keys_lead_back_to_the_same_bits(a):
    back = from_order_key(order_key([a]))
    assert back.dtype == np.float32
    assert back.tobytes() == struct.pack("<f", 0.0 if a == 0.0 else a)


def test_nan_is_refused_with_its_place():
    with pytest.raises(DataError, match=r"scores\[2\] is nan"):
        order_key([0.0, 1.0, np.nan])


@pytest.mark.parametrize(
    ("alpha", "n", "clients", "rank"),
    [
        (0.1, 990, 10, 900),
        (1 - 0.9, 990, 10, 900),
        (0.1, 991, 10, 901),
        (0.18, 140, 10, 123),  # floats: 0.8200000000000001 · 150 → 124
        (0.7, 9, 1, 3),  # floats: 0.30000000000000004 · 10 → 4
        (0.05, 19, 1, 19),
        (0.05, 18, 1, 19),
        (1 / 3, 8, 1, 6),
        (1e-9, 10, 1, 11),
        (0.5, 0, 1, 1),
        (np.float64(0.2), 14, 1, 12),
        (1 - 1e-13, 10, 3, 1),  # the simplest fraction is 1, the rank is not 0
        (np.nextafter(1.0, 0.0), 10**6, 1, 1),
        (1 - 1e-13, 7, 0, 1),
        (1 - 1e-13, 0, 1, 1),
    ],
)
def test_exact_rank(alpha, n, clients, rank):
    assert exact_rank(alpha, n, clients) == rank


@given(st.integers(1, 999), st.integers(0, 10**9), st.integers(1, 10**4))
def test_exact_rank_is_integer_arithmetic_for_decimal_levels(thousandths, n, clients):
    expected = -(-(1000 - thousandths) * (n + clients) // 1000)
    assert exact_rank(thousandths / 1000, n, clients) == expected


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(UsageError, match=r"alpha is .* strictly between 0 and 1"):
        exact_rank(alpha, 10, 1)


def test_mixture_weights_by_hand():
    # (1/4)/(3+1) = 1/16 and (3/4)/(5+1) = 1/8.
    assert mixture_weights([3, 5], [1, 3]) == ([1, 2], 16)
    assert mixture_weights([3, 5], [0.25, 0.75]) == ([1, 2], 16)
    assert mixture_weights([3, 5], [Fraction(1, 4), 0.75]) == ([1, 2], 16)
    assert mixture_weights([1, 4, 0], [0.5, 0.3, 0.2]) == ([25, 6, 20], 100)
    assert mixture_weights([7, 2], [0, 9]) == ([0, 1], 3)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_mixture_weights_of_theorem_1_are_ones_and_its_total(n):
    expected = ([1] * len(n), sum(n) + len(n))
    assert mixture_weights(n) == expected
    assert mixture_weights(n, np.array(n) + 1) == expected


def test_mixture_weights_do_not_overflow():
    shares = np.array([2**62, 2**62 - 1])
    weights, scale = mixture_weights([10**9, 10**9 + 6], shares)
    total = 2**63 - 1
    assert Fraction(weights[0], scale) == Fraction(2**62, total * (10**9 + 1))
    assert Fraction(weights[1], scale) == Fraction(2**62 - 1, total * (10**9 + 7))
