"""Sums of integers: exact, the same in any order, and nothing that cannot be added is sent."""

from fractions import Fraction
from math import fsum, inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.errors import DataError
from fedcover.fixed_point import BITS, add, decode, decode_wide, encode, encode_wide

moderate = st.floats(-1e6, 1e6)
# Any number that a feature may be: its smallest part is 2^-160.
wide = st.one_of(st.floats(1e-30, 1e75), st.floats(-1e75, -1e-30), st.just(0.0))


@given(st.lists(moderate, min_size=1, max_size=30), st.randoms())
def test_a_sum_is_exact_and_the_same_in_any_order(values, random):
    terms = [{"sum": encode([value])} for value in values]
    total = add(terms)["sum"]
    random.shuffle(terms)
    assert np.array_equal(add(terms)["sum"], total)
    assert int(total[0]) == sum(round(Fraction(value) * 2**BITS) for value in values)
    assert decode(total)[0] == pytest.approx(fsum(values), abs=len(values) * 2.0**-BITS)


@given(moderate, st.integers(0, 40))
def test_a_number_is_rounded_to_the_nearest_multiple(value, bits):
    assert abs(float(decode(encode(value, bits), bits)) - value) <= 2.0 ** -(bits + 1)


@given(st.lists(wide, min_size=1, max_size=30), st.randoms())
def test_wide_sums_are_rounded_once_and_the_same_in_any_order(values, random):
    terms = [{"sum": encode_wide([value])} for value in values]
    total = decode_wide(add(terms)["sum"])
    random.shuffle(terms)
    assert np.array_equal(decode_wide(add(terms)["sum"]), total)
    exact = sum((Fraction(value) * 2**160).__floor__() for value in values)
    assert total[0] == exact / 2**160


@given(wide)
def test_a_wide_number_alone_comes_back_as_it_was(value):
    # A float of 1e-30 has its last bit at 2^-152, above 2^-160.
    assert decode_wide(encode_wide(value)) == value


def test_wide_numbers_cancel_where_floats_would_not():
    values = [1e70, 1.0, -1e70, 2.0**-100]
    total = add({"sum": encode_wide([value])} for value in values)["sum"]
    assert decode_wide(total).tolist() == [1.0 + 2.0**-100]


def test_shapes_stay_and_wide_numbers_get_one_more_axis():
    values = np.arange(6.0).reshape(2, 3)
    assert encode(values).shape == (2, 3)
    assert encode_wide(values).shape == (2, 3, 14)
    np.testing.assert_array_equal(decode_wide(encode_wide(values)), values)


@pytest.mark.parametrize("value", [nan, inf, -inf, 2.0**31, -(2.0**31)])
def test_what_cannot_be_added_is_refused(value):
    with pytest.raises(DataError, match="not finite, or too large to be sent"):
        encode([0.0, value])


@pytest.mark.parametrize("value", [nan, inf, -inf, 1e80, -1e81])
def test_what_is_too_wide_is_refused(value):
    with pytest.raises(DataError, match="not finite, or too large to be sent"):
        encode_wide([0.0, value])


def test_messages_are_added_array_by_array():
    messages = [{"a": np.array([1, 2]), "n": np.array(3)}, {"a": np.array([10, 20])}]
    total = add(messages)
    assert total["a"].tolist() == [11, 22]
    assert total["n"] == 3
    assert add([]) == {}
