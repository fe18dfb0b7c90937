import numpy as np
import pytest

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
