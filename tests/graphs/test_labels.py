import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.graphs.labels import encode


@pytest.mark.parametrize(
    ("values", "codes", "names"),
    [
        (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
        (["10", "9", "-1"], [2, 1, 0], ["-1", "9", "10"]),
        (["10", "9", "x"], [0, 1, 2], ["10", "9", "x"]),
        (np.array([30, 4, 30]), [1, 0, 1], ["4", "30"]),
        (["é", "e", "z"], [2, 0, 1], ["e", "z", "é"]),
    ],
)
def test_encode(values, codes, names):
    found, found_names = encode(values)
    assert found.tolist() == codes
    assert found_names == names
    assert found.dtype == np.int64


def test_integers_of_any_length_are_ordered_by_size():
    long = "9" * 5000
    _, names = encode([long, "1" + "0" * 5000, "7", "-" + long, "-8", "007", "-0", "0"])
    assert names == ["-" + long, "-8", "-0", "0", "007", "7", long, "1" + "0" * 5000]


@given(st.sets(st.integers(-(10**30), 10**30).map(str), min_size=1))
def test_integers_are_ordered_as_python_orders_them(values):
    assert encode(sorted(values))[1] == sorted(values, key=int)
