"""Parquet files are looked over: what polars writes passes, numbers out of bounds do not."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.errors import DataError
from fedcover.graphs import compressed
from fedcover.graphs.compressed import check_parquet
from fedcover.graphs.readers import read_folder


def write(path: Path, **options: object) -> Path:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "id": range(3000),
            "label": rng.choice(["x", "y", None], 3000).tolist(),
            "age": rng.normal(size=3000),
            "empty": pl.Series([None] * 3000),
        }
    )
    frame.write_parquet(path, **options)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "uncompressed"},
        {"compression": "snappy"},
        {"compression": "gzip"},
        {"row_group_size": 500},
        {"data_page_size": 300},
        {"statistics": "full"},
    ],
)
def test_what_polars_writes_passes(tmp_path: Path, options: dict) -> None:
    check_parquet(write(tmp_path / "t.parquet", **options))


def test_a_table_without_rows_passes(tmp_path: Path) -> None:
    pl.DataFrame({"a": []}).write_parquet(tmp_path / "t.parquet")
    check_parquet(tmp_path / "t.parquet")


def unsigned(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def signed(value: int) -> bytes:
    return unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20))
def test_numbers_of_the_compact_protocol(numbers: list[int]) -> None:
    head = bytes([len(numbers) << 4 | 6]) if len(numbers) < 15 else b"\xf6" + unsigned(len(numbers))
    content = b"\x19" + head + b"".join(map(signed, numbers)) + b"\x21\x18\x03abc\x00"
    file = io.BytesIO(content)
    assert compressed._struct(file) == {1: numbers, 3: True, 4: None}
    assert file.tell() == len(content)


@pytest.mark.parametrize(
    "footer",
    [
        b"\x16" + signed(2**60) + b"\x00",  # a number beyond anything
        b"\x16" + signed(-7) + b"\x00",
        b"\x19\xf6" + unsigned(2**40),  # a list longer than the file
        b"\x18" + unsigned(2**50) + b"\x00",  # a text as long
        b"\x1c" * 4000,  # structures in structures
        b"\x19\xf7" + unsigned(2**40),  # a list of numbers that take no byte
        b"\x16" + b"\xff" * 20,  # a number without end
        b"\x16",
        b"\x1f\x00",  # no such type
    ],
)
def test_footers_that_cannot_be_right(tmp_path: Path, footer: bytes) -> None:
    content = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    path = tmp_path / "nodes.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"nodes\.parquet is not a readable Parquet file\."):
        read_folder(tmp_path)


def test_a_file_that_is_cut_off_has_no_footer(tmp_path: Path) -> None:
    whole = write(tmp_path / "t.parquet").read_bytes()
    for length in (0, 3, 11, len(whole) // 2, len(whole) - 1):
        (tmp_path / "t.parquet").write_bytes(io.BytesIO(whole).read(length))
        with pytest.raises(DataError, match=r"t\.parquet is not a readable Parquet file\."):
            check_parquet(tmp_path / "t.parquet")


BOMBS = {
    # 20 row groups of one word of 8 MB, no one of which is too much
    "row groups": (lambda: pl.Series(["x" * 2**23] * 20), {"row_group_size": 1}),
    # Two words in a dictionary, which stand in 20,000 rows
    "dictionary": (lambda: pl.Series(["x" * 30_000, "y" * 30_000] * 10_000), {}),
    "categories": (
        lambda: pl.Series(["x" * 30_000, "y" * 30_000] * 10_000, dtype=pl.Categorical),
        {},
    ),
    "labels": (lambda: pl.Series(["x" * 30_000, "y" * 30_000] * 10_000).alias("label"), {}),
}


@pytest.mark.parametrize("case", BOMBS)
def test_long_words_that_repeat_are_refused_before_they_are_copied(
    tmp_path: Path, case: str
) -> None:
    make, options = BOMBS[case]
    words = make()
    n = len(words)
    frame = pl.DataFrame(
        {"id": range(n), "label": ["a", "b"] * (n // 2), "f": [1.0] * n}
    ).with_columns(words.alias(words.name or "w"))
    path = tmp_path / "nodes.parquet"
    frame.write_parquet(path, compression="zstd", statistics=False, **options)
    assert path.stat().st_size < 200_000
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    with pytest.raises(DataError, match=r"nodes\.parquet unpacks to more than 67,108,864 bytes"):
        read_folder(tmp_path)


def test_columns_of_edges_that_are_not_used_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = pl.read_parquet

    def watched(*arguments: object, **options: object) -> pl.DataFrame:
        asked.append(options["columns"])
        return real(*arguments, **options)  # type: ignore[arg-type]

    (tmp_path / "nodes.csv").write_text("id,label,a\nu,x,1\nv,y,2\n")
    edges = {"weight": [["any"]], "To": ["u"], "note": ["x" * 9], "src": ["v"]}
    pl.DataFrame(edges).write_parquet(tmp_path / "edges.parquet")
    monkeypatch.setattr(pl, "read_parquet", watched)
    assert read_folder(tmp_path).edge_index.tolist() == [[0, 1], [1, 0]]
    assert asked == [["To", "src"]]


def test_columns_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": range(9)}).write_parquet(path)
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    start = compressed._struct
    assert len(start(io.BytesIO(whole[-8 - length : -8]))[4]) == 1

    # What stands in the footer for a row group is not touched; its list is read twelve times over.
    def twelve(file: io.BytesIO) -> dict:
        fields = start(file)
        return fields | {4: fields[4] * 12} if isinstance(fields.get(4), list) else fields

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compressed, "_struct", twelve)
        with pytest.raises(DataError) as caught:
            check_parquet(path)
    assert "shares its bytes with others" in str(caught.value.__cause__)
    check_parquet(path)
