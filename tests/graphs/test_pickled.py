"""What pickles say is kept, and nothing that they name is called."""

from __future__ import annotations

import os
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fedcover.errors import DataError
from fedcover.graphs.planetoid import Spelt, array_of
from fedcover.graphs.planetoid import read_pickled as read_named

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers(), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(plain, st.sampled_from([0, 1, 2, 3, 4, 5]))
def test_plain_values_are_those_of_pickle(value: object, protocol: int) -> None:
    assert read_pickled(pickle.dumps(value, protocol=protocol)) == value


@given(
    st.sampled_from(["<i4", ">i4", "<i8", "<f4", ">f8", "u1"]),
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.booleans(),
)
def test_arrays_are_those_of_pickle(dtype: str, shape: list[int], fortran: bool) -> None:
    values = np.arange(np.prod(shape)).astype(dtype).reshape(shape, order="F" if fortran else "C")
    found = array_of(read_pickled(pickle.dumps(values, protocol=4)))
    assert found.dtype == values.dtype.newbyteorder("=")
    assert np.array_equal(found, values)


def test_matrices_and_neighbours() -> None:
    matrix = sparse.csr_matrix(np.eye(3, 5))
    found = read_pickled(pickle.dumps(matrix, protocol=3))
    assert np.array_equal(array_of(found.state["indices"]), matrix.indices)
    neighbours = defaultdict(list, {0: [1, 2], 5: []})
    assert read_pickled(pickle.dumps(neighbours, protocol=2)) == {0: [1, 2], 5: []}


def read_pickled(content: bytes) -> object:
    return read_named(content, "graph")


class Evil:
    def __init__(self, call: object, *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_is_called(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "called"
    for evil in (Evil(os.mkdir, str(mark)), Evil(eval, f"open({str(mark)!r}, 'w')"), Evil(print)):
        content = pickle.dumps([1, evil], protocol=protocol)
        with pytest.raises(DataError, match="asks for"):
            read_pickled(content)
    assert not mark.exists()


def test_objects_in_arrays_and_arrays_without_their_bytes_are_refused() -> None:
    for content in (
        pickle.dumps(np.array([{}], dtype=object), protocol=3),
        pickle.dumps(np.zeros(4), protocol=3).replace(b"K\x04\x85", b"K\x05\x85"),
        pickle.dumps(np.array(["text"]), protocol=3),
    ):
        stored = read_pickled(content)
        with pytest.raises((TypeError, ValueError)):
            array_of(stored)


def copies(spelt: bytes, copy: bytes, times: int) -> bytes:
    """A list of a thing in the memo, and of what is made of it so many times."""
    return b"\x80\x02](" + spelt + b"q\x00" + copy * times + b"e."


def test_nothing_is_copied() -> None:
    numbers = b"](" + b"K\x01" * 1000 + b"e"
    copy = b"c__builtin__\nlist\nh\x00\x85R"
    raw = b"B" + (1000).to_bytes(4, "little") + bytes(1000)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01M\xe8\x03\x85"
        b"cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R\x89h\x00tb"
    )
    for content in (copies(numbers, copy, 300), copies(raw, array, 50)):
        first, *others = read_pickled(content)
        assert all(isinstance(other, Spelt) for other in others)
        assert all(first in (*other.arguments, *(other.state or ())) for other in others)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02N" + b"r\xff\xff\xff\x7f.",  # the memo's last place
        b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",  # room for a terabyte
        b"\x80\x04\x95" + (2**40).to_bytes(8, "little") + b"N.",
        b"\x80\x02}()" + b"\x85" * 1_000_000 + b"K\x01u.",  # a key of tuples in tuples
        b"\x80\x02\x82\x01.",  # what an extension registered
        b"\x80\x02cnumpy\ndtype\nN}X\x01\x00\x00\x00aK\x01s\x86b.",  # a name with a state
    ],
)
def test_what_would_take_memory_or_the_stack_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="Planetoid file"):
        read_pickled(content)
    assert not hasattr(Spelt, "a")
