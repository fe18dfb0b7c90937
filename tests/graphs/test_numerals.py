"""Semicolons between columns, and decimal commas with them: what spreadsheets write in Europe."""

import gzip

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.errors import DataError
from fedcover.graphs import read_folder
from fedcover.graphs.schema import schema_of
from fedcover.graphs.spelling import with_points

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


def test_a_header_may_have_the_other_separator_in_a_name(tmp_path):
    folder(tmp_path, "id;label;kg, lbs\nu;x;1,5\nv;y;2\n", "source,target,a;b\nu,v,1\n")
    assert read_folder(tmp_path).feature_names == ["kg, lbs"]


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
        (NODES.replace(";-1;", ";1.234,5;"), "line 3, column 'b': '1.234,5' is not a number."),
        (NODES.replace(";-1;", ";1,2,3;"), "line 3, column 'b': '1,2,3' is not a number."),
        (NODES.replace(";-1;", ";;"), "line 3, column 'b': is empty; fill it in, or have missing"),
    ],
)
def test_numbers_that_could_be_others_are_refused(tmp_path, nodes, message):
    with pytest.raises(DataError) as refused:
        read_folder(folder(tmp_path, nodes))
    assert f"nodes.csv, {message}" in str(refused.value)


COLUMNS = "id;label;a;c\nu;x;1,5;{}\nv;y;2;{}\nw;x;3;{}\nz;y;4,5;{}\n"


@pytest.mark.parametrize(
    "values", [("2,5", "V30.1", "2,5", "mild"), ("401.9", "E11.9", "V30.1", "E11.9")]
)
def test_words_stay_as_they_are_and_are_read_again_by_the_schema(tmp_path, values):
    folder(tmp_path, COLUMNS.format(*values), "source;target\nu;v\n")
    graph = read_folder(tmp_path)
    assert graph.feature_names == ["a", *(f"c={word}" for word in sorted(set(values)))]
    again = read_folder(tmp_path, schema_of(graph))
    assert (again.x.to_dense() == graph.x.to_dense()).all()


@pytest.mark.parametrize(
    ("values", "row"),
    [
        (("1.234,5", "1.234,5", "12.000,0", "7"), 2),
        (("1 234,5", "1 234,5", "9 999,0", "7,5"), 2),
        (("a", "1.234.567", "1.234.567", "2.000.000"), 3),
        (("1,5%", "1,5%", "2 %", "3%"), 2),
    ],
)
@pytest.mark.parametrize("separator", [";", "\t"])
def test_numbers_with_signs_in_them_are_no_words(tmp_path, values, row, separator):
    folder(tmp_path, edges="source;target\nu;v\n")
    (tmp_path / "nodes.csv").unlink()
    content = COLUMNS.format(*values).replace("1,5;", "1.5;").replace("4,5;", "4.5;")
    end = "csv" if separator == ";" else "tsv"
    text = content.replace(";", separator)
    (tmp_path / f"nodes.{end}").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"line {row}, column 'c': .* is neither a word nor a num"):
        read_folder(tmp_path)


@pytest.mark.parametrize("values", [("950", "1,234", "7", "12,500"), ("1.234", "7", "0", "12.500")])
def test_thousands_are_refused(tmp_path, values):
    content = COLUMNS.replace("1,5", "1").replace("4,5", "4").format(*values)
    with pytest.raises(DataError, match=r"column 'c': .* may be a number of thousands"):
        read_folder(folder(tmp_path, content, "source;target\nu;v\n"))


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=20),
)
def test_a_comma_means_what_a_point_means(numbers):
    text = [repr(number) for number in numbers]
    frame = pl.DataFrame({"x": [one.replace(".", ",") for one in text]})
    assert with_points(frame, ["x"], lambda *_: None)["x"].to_list() == text
