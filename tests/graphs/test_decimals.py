"""Semicolons between columns, and decimal commas with them: what spreadsheets write in Europe."""

import gzip

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.errors import DataError
from fedcover.graphs import read_folder
from fedcover.graphs.decimals import with_points

NODES = "id;label;a;b;ward\nu;x;1;0,5;north, left\nv;y;2;-1;south\nw;x;3;1e-3;south\n"
EDGES = "source;target;weight\nu;v;0.5\nv;w;1,5\n"


def folder(path, nodes=NODES, edges=EDGES):
    (path / "nodes.csv").write_text(nodes, encoding="utf-8")
    (path / "edges.csv").write_text(edges, encoding="utf-8")
    return path


def test_semicolons_and_decimal_commas_by_hand(tmp_path):
    graph = read_folder(folder(tmp_path))
    assert graph.feature_names == ["a", "b", "ward=north, left", "ward=south"]
    wanted = [[1, 0.5, 1, 0], [2, -1, 0, 1], [3, np.float32(1e-3), 0, 1]]
    np.testing.assert_array_equal(graph.x.to_dense(), wanted)
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


def test_a_packed_file_may_have_them_and_the_other_table_commas(tmp_path):
    folder(tmp_path, edges="source,target\nu,v\nv,w\n")
    plain = tmp_path / "nodes.csv"
    (tmp_path / "nodes.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert read_folder(tmp_path).x.shape == (3, 4)


def test_decimal_points_between_semicolons_are_points(tmp_path):
    graph = read_folder(folder(tmp_path, NODES.replace("0,5", "0.5")))
    assert graph.x.to_dense()[0, 1] == 0.5


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            NODES.replace("v;y;2;", "v;y;2.5;"),
            "line 3, column 'a': '2.5' has a decimal point, but the column 'b' has decimal commas.",
        ),
        (
            NODES.replace(";-1;", ";1.234,5;"),
            "line 3, column 'b': '1.234,5' has a point and a comma; write numbers without "
            "separators.",
        ),
        (NODES.replace(";-1;", ";1,2,3;"), "line 3, column 'b': '1,2,3' is not a number."),
        (NODES.replace(";-1;", ";;"), "line 3, column 'b': is empty; fill it in, or have missing"),
    ],
)
def test_numbers_that_could_be_others_are_refused(tmp_path, nodes, message):
    with pytest.raises(DataError) as refused:
        read_folder(folder(tmp_path, nodes))
    assert f"nodes.csv, {message}" in str(refused.value)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=20),
)
def test_a_comma_means_what_a_point_means(numbers):
    text = [repr(number) for number in numbers]
    frame = pl.DataFrame({"x": [one.replace(".", ",") for one in text]})
    assert with_points(frame, ["x"])["x"].to_list() == text
