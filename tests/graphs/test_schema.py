"""What parties agree on: one spelling, one fingerprint, and differences with a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.errors import DataError
from fedcover.graphs.schema import Schema, parse_schema, read_schema

names = st.lists(st.text(max_size=6), min_size=1, max_size=6, unique=True)
schemas = st.builds(
    lambda columns, kinds, labels: Schema(tuple(zip(columns, kinds, strict=False)), tuple(labels)),
    names,
    st.lists(st.sampled_from(["binary", "number"]), min_size=6, max_size=6),
    st.lists(st.text(max_size=4), min_size=2, max_size=4, unique=True),
)
AGREED = Schema((("age", "number"), ("smokes", "binary"), ("height", "number")), ("ill", "well"))


@given(schemas)
def test_a_schema_is_read_as_it_was_written(schema: Schema) -> None:
    again = parse_schema(schema.to_json(), "file")
    assert again == schema
    assert again.fingerprint == schema.fingerprint
    assert schema.difference(schema) == ""


@given(schemas, schemas)
def test_fingerprints_are_equal_for_equal_schemas_alone(left: Schema, right: Schema) -> None:
    assert (left.fingerprint == right.fingerprint) == (left == right)


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        ((("age", "number"), ("smokes", "binary")), ("ill",), "'height' is missing"),
        (
            (("age", "number"), ("height", "number"), ("smoker", "binary")),
            ("ill",),
            "'smokes' is missing, the agreed feature 2",
        ),
        ((*AGREED.features, ("iq", "number")), ("ill",), "'iq' is one feature more"),
        (
            (("age", "number"), ("smokes", "number"), ("height", "number")),
            ("ill",),
            "'smokes' has other values than 0 and 1",
        ),
        (AGREED.features, ("dead", "ill"), "'label' has 'dead'"),
    ],
)
def test_the_first_difference_is_named(features: tuple, labels: tuple, words: str) -> None:
    assert words in AGREED.difference(Schema(features, labels))


def test_fewer_labels_and_stricter_columns_fit() -> None:
    strict = tuple((name, "binary") for name in AGREED.names)
    assert AGREED.difference(Schema(strict, ("well",))) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a schema"),
        ("[]", "not a schema"),
        ('{"features": []}', "no 'labels'"),
        ('{"features": [["a", "word"]], "labels": ["x", "y"]}', "'word'"),
        ('{"features": [["a", "number"], ["a", "number"]], "labels": ["x", "y"]}', "'a' twice"),
        ('{"features": [["a", "number"]], "labels": ["x", "x"]}', "'x' twice"),
        ('{"features": [["a", "number"]], "labels": ["x"]}', "two labels"),
        ('{"features": [["a", "number"]], "labels": [1, 2]}', "must have a name"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(content)
    with pytest.raises(DataError, match=r"schema\.json") as refused:
        read_schema(file)
    assert words in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_schema(tmp_path / "schema.json")


def test_the_text_is_plain_json() -> None:
    content = json.loads(AGREED.to_json())
    assert content == {
        "features": [["age", "number"], ["smokes", "binary"], ["height", "number"]],
        "labels": ["ill", "well"],
    }
