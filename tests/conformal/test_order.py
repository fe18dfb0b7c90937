import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.conformal.order import from_order_key, order_key
from fedcover.conformal.targets import exact_rank
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
