"""Ways to damage a file, each seeded: any bytes, or the values of a file that stays well formed."""

from __future__ import annotations

import copy
import csv
import faulthandler
import io
import json
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedcover.errors import FedcoverError

MOST_GROWTH = 700 * 2**20  # bytes of memory that one kind of file may add
HANGS = 300  # seconds for all files of a kind, which take a few
TOKENS = (
    *(b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b",", b'"', b"\t", b";"),
    *(b"nan", b"inf", b"-inf", b"1e999", b"-0", b"NULL", b"id", b"label", b"Y", b"\x1f"),
    *(b"[", b"{", b"9" * 40, b"A" * 300, b",,,,", b"\xf0\x9f\x98\x80", b"../"),
    *(b"\x7f\xff\xff\xff", b"\\ud800"),
)
WORDS = (
    *("", " ", "a", "x", "Y", "train", "TEST", "true", "nan", "NaN", "inf", "-inf", "NULL", "id"),
    *("0", "1", "-1", "1.0", "1e999", "-0", "1_000", "1,5", "0x1f", "9" * 40, "W" * 3000),
    *("a b", "a,b", "a;b", 'a"b', "a\nb", "a\tb", "\x00", "\ufeff", "ß", "\u0661", "😀", "../a"),
)
TYPES: tuple[Any, ...] = (
    *(pl.Int8, pl.UInt64, pl.Float32, pl.Float64, pl.String, pl.Boolean, pl.Categorical),
    *(pl.Date, pl.Datetime("us", "UTC"), pl.Duration, pl.Time, pl.Binary, pl.Null),
    *(pl.Decimal(38, 2), pl.List(pl.String), pl.Struct({"a": pl.Int8}), pl.Array(pl.Int8, 2)),
)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 10**9, 10**40, 1e308, float("nan"), float("inf")),
    *("", "a", "../a", "\ud800", "\x00", "9" * 5000, [], [None], [[]], [0, 0], ["a", "a"], {}),
    {"a": None},
)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """A few small wounds: bits, bytes, words, pieces that are missing, doubled or moved."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(0, len(data) + 1))
        length = int(rng.integers(1, 12))
        match int(rng.integers(0, 8)):
            case 0 if data:
                data[at % len(data)] ^= 1 << int(rng.integers(0, 8))
            case 1 if data:
                data[at % len(data)] = int(rng.integers(0, 256))
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = TOKENS[int(rng.integers(0, len(TOKENS)))]
            case 4:
                data[at : at + length] = TOKENS[int(rng.integers(0, len(TOKENS)))]
            case 5:
                data[at:at] = data[at : at + 5 * length]
            case 6 if rng.random() < 0.3:
                del data[at:]
            case 7:
                other = int(rng.integers(0, len(data) + 1))
                data[at : at + length] = data[other : other + length]
            case _:
                data[at:at] = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
    return bytes(data)


def other_cells(content: bytes, rng: np.random.Generator) -> bytes:
    """A CSV with other words in one or two cells, or a row or column twice or not at all."""
    rows = list(csv.reader(io.StringIO(content.decode())))
    for _ in range(int(rng.integers(1, 3))):
        row, column = int(rng.integers(0, len(rows))), int(rng.integers(0, len(rows[0])))
        match int(rng.integers(0, 8)):
            case 0:
                rows.insert(row, rows[row])
            case 1 if len(rows) > 1:
                del rows[row]
            case 2:
                rows = [[*one[:column], one[column], *one[column:]] for one in rows]
            case 3 if len(rows[0]) > 1:
                rows = [[*one[:column], *one[column + 1 :]] for one in rows]
            case 4:
                word = one_of(WORDS, rng)
                rows = [rows[0], *([*r[:column], word, *r[column + 1 :]] for r in rows[1:])]
            case _:
                rows[row] = [*rows[row][:column], one_of(WORDS, rng), *rows[row][column + 1 :]]
    text = io.StringIO()
    csv.writer(text, lineterminator=one_of(("\n", "\r\n"), rng)).writerows(rows)
    return text.getvalue().encode()


def other_table(content: bytes, rng: np.random.Generator) -> bytes:
    """The same as Parquet, perhaps with a column of another type."""
    frame = pl.read_csv(other_cells(content, rng), infer_schema=False)
    numbers = frame.columns if rng.random() < 0.7 else []
    frame = frame.with_columns(_number(frame[name]) for name in numbers)
    if rng.random() < 0.5:
        name, kind = one_of(frame.columns, rng), one_of(TYPES, rng)
        try:
            column = frame[name].cast(kind, strict=False)
        except pl.exceptions.PolarsError:
            column = pl.Series(name, [None] * frame.height, dtype=kind)
        frame = frame.with_columns(column)
    file = io.BytesIO()
    frame.write_parquet(file, compression=one_of(("zstd", "snappy", "uncompressed"), rng))
    return file.getvalue()


def _number(column: pl.Series) -> pl.Series:
    """As numbers, if it holds no words."""
    number = column.cast(pl.Float64, strict=False)
    return number if number.null_count() == column.null_count() else column


def other_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other values, shape or type."""
    match int(rng.integers(0, 9)):
        case 0:
            return array[: int(rng.integers(0, len(array) + 1))] if array.ndim else array[None]
        case 1:
            return np.concatenate([array, array]) if array.ndim else np.array(7)
        case 2:
            return array[..., None] if rng.random() < 0.5 else array.reshape(-1)
        case 3:
            return array[::-1] if array.ndim else array
        case 4:
            kind = one_of("?bBhHiIqQefdgFDSUOMmV", rng)
            try:
                with np.errstate(all="ignore"):
                    return array.astype(kind)
            except (TypeError, ValueError):
                return np.zeros(array.shape, kind)
        case 5 if array.dtype.kind in "iuf":
            return array + array.dtype.type(one_of((1, 3, 100), rng))
        case _:
            other = array.copy()
            if other.size and other.dtype.kind in "iufU":
                bounds = {"i": (-1, 1), "u": (0, 1), "f": (np.nan, np.inf, -1), "U": ("", "a")}
                extremes: list[Any] = list(bounds[other.dtype.kind])
                if other.dtype.kind in "iu":
                    extremes += [np.iinfo(other.dtype).min, np.iinfo(other.dtype).max]
                other.flat[int(rng.integers(0, other.size))] = one_of(extremes, rng)
            return other


def other_arrays(content: bytes, rng: np.random.Generator) -> bytes:
    """An npz with one array changed, left out or under another name."""
    with np.load(io.BytesIO(content)) as archive:
        arrays: dict[str, Any] = dict(archive)
    name = one_of(list(arrays), rng)
    match int(rng.integers(0, 10)):
        case 0:
            del arrays[name]
        case 1:
            spelt = ("../" + name, "/etc/" + name, "..\\" + name, name + "\0", name.upper())
            arrays[one_of(spelt, rng)] = arrays.pop(name)
        case _:
            arrays[name] = other_array(arrays[name], rng)
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=True, **arrays)
    return file.getvalue()


def other_member(content: bytes, rng: np.random.Generator) -> bytes:
    """The archive with the bytes of one member damaged, its checksum right."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        chosen = one_of(old.namelist(), rng)
        for name in old.namelist():
            inside = old.read(name)
            new.writestr(name, damaged(inside, rng) if name == chosen else inside)
    return file.getvalue()


def other_values(content: Any, rng: np.random.Generator) -> Any:
    """A tree of dictionaries and lists with one of its values changed, doubled or left out."""
    tree = copy.deepcopy(content)
    places = list(_places(tree))
    parent, key = places[int(rng.integers(0, len(places)))]
    match int(rng.integers(0, 6)):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, list):
            parent.insert(key, parent[key])
        case 2:
            other, place = places[int(rng.integers(0, len(places)))]
            parent[key] = copy.deepcopy(other[place]) if other is not parent else None
        case _:
            parent[key] = one_of(ODD, rng)
    return tree


def other_json(content: bytes, rng: np.random.Generator) -> bytes:
    """The text of such a tree."""
    return json.dumps(other_values(json.loads(content), rng)).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every dictionary or list in it with each of its keys."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


def one_of(choices: Sequence[Any], rng: np.random.Generator) -> Any:
    """One of them, by chance."""
    return choices[int(rng.integers(0, len(choices)))]


def tried(
    kind: str,
    read: Callable[[np.random.Generator], object],
    count: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Read so many damaged files: some are read, some refused in a line, and nothing else happens.

    A failure's message holds the seed, so that it can be had again. A file that hangs ends the
    process, with a traceback.
    """
    before = _most_memory()
    faulthandler.dump_traceback_later(HANGS, exit=True, file=sys.__stderr__)
    try:
        refusals = list(_refusals(kind, read, count))
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert 0 < len(refusals) < count, "damage must be small enough for some, and enough for some"
    assert not [refusal for refusal in refusals if "\n" in refusal]
    assert capfd.readouterr().err == ""
    assert _most_memory() - before < MOST_GROWTH


def _refusals(
    kind: str, read: Callable[[np.random.Generator], object], count: int
) -> Iterator[str]:
    for seed in range(count):
        try:
            read(np.random.default_rng([seed, 0xF022]))
        except FedcoverError as refusal:
            yield str(refusal)
        except (Exception, pl.exceptions.PanicException) as error:
            raise AssertionError(f"{kind}, seed {seed}: {error!r}") from error


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
