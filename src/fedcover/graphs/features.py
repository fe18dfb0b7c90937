"""Columns to features: numbers as they are, words as one column for each (one-hot).

Missing values are refused, or left out and marked: what stands in for them are statistics of
training nodes, which only a split tells apart (:mod:`fedcover.graphs.scaling`).
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from fedcover.errors import UsageError, listed
from fedcover.graphs.schema import Column, Kind, Schema
from fedcover.graphs.spelling import NANS, separated, stripped
from fedcover.graphs.tables import Table

MAX_CATEGORIES = 100  # a column of more different words looks like an identifier
KINDS_PER_WORD = 10  # a column with more values for each word holds numbers, with words among

Missing: TypeAlias = Literal["refuse", "impute"]  # what happens to features that are empty or NaN

_WORDS = (pl.String, pl.Categorical, pl.Enum)
_BOOLEANS = {"true": 1.0, "false": 0.0}


def check_missing(missing: str) -> None:
    """Refuse another word than those of :data:`Missing`."""
    known = get_args(Missing)
    if missing not in known:
        raise UsageError(f"missing is {missing!r}; it must be one of {', '.join(known)}.")


def read_features(
    table: Table, names: Sequence[str], missing: str = "refuse", schema: Schema | None = None
) -> tuple[sparse.csr_array | NDArray[np.float32], tuple[Column, ...], NDArray[np.int64]]:
    """Turn the columns of these names into features, with the schema's types if there is one.

    Returns the matrix (n, features), the columns it was made of, and the rows and columns (2, m) of
    cells that await a training mean and hold 0.
    """
    check_missing(missing)
    agreed = {} if schema is None else dict(schema.features)
    blocks: list[Any] = []
    columns: list[Column] = []
    empty, width = [np.empty((2, 0), dtype=np.int64)], 0
    for name in names:
        kind = agreed.get(name)
        if isinstance(kind, tuple) or (kind is None and _is_wordy(table, name)):
            block, kind = _categories(table, name, missing, kind)
        else:
            block, gaps, kind = _numbers(table, name, missing)
            empty.append(np.stack([gaps, np.full(len(gaps), width)]))
        blocks.append(block)
        columns.append((name, kind))
        width += block.shape[1]
    if any(sparse.issparse(block) for block in blocks):
        x = sparse.csr_array(sparse.hstack(blocks, format="csr", dtype=np.float32))
    else:
        x = np.concatenate(blocks, axis=1)
    return x, tuple(columns), np.concatenate(empty, axis=1)


def _is_wordy(table: Table, name: str) -> bool:
    """Whether a column holds words: more of them than numbers, but not only true and false."""
    values = table.frame[name]
    if values.dtype not in _WORDS or _are_booleans(values):
        return False
    if not table.is_csv:
        return True  # types mean something here
    text = _words(values).drop_nulls()
    words, kinds = text.filter(text.cast(pl.Float32, strict=False).is_null()), text.n_unique()
    # One "unknown" for most nodes, and many different numbers, makes no words of these.
    return 2 * len(words) >= len(text) > 0 and KINDS_PER_WORD * words.n_unique() >= kinds


def _words(values: pl.Series) -> pl.Series:
    """Words without blanks around them; where there is none, or NaN, null."""
    return stripped(values).replace(list(NANS), [None] * len(NANS))


def _are_booleans(values: pl.Series) -> bool:
    """Whether it is a column of words that are all true and false."""
    if values.dtype not in _WORDS:
        return False
    words = _words(values).drop_nulls().unique().str.to_lowercase()
    return bool(words.is_in(list(_BOOLEANS)).all())


def _numbers(
    table: Table, name: str, missing: str
) -> tuple[NDArray[np.float32], NDArray[np.int64], Kind]:
    """A column of numbers (n, 1), the rows where it has none, and whether all are 0 or 1."""
    values = table.frame[name]
    if values.dtype == pl.String if table.is_csv else _are_booleans(values):
        values = _parsed(table, name)
    if values.dtype == pl.Null:
        values = values.cast(pl.Float32)
    if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
        table.refuse_type(name, "numbers")
    given = values.is_not_null()
    numbers = values.cast(pl.Float32, strict=False)
    gaps = ~given | numbers.is_nan().fill_null(False)
    if missing == "refuse":
        table.refuse_where(~given, name, f"is empty{_HINT}")
        table.refuse_where(gaps, name, f"is not a number (NaN){_HINT}")
    beyond = (numbers.is_null() & given) | numbers.is_infinite()  # what float32 can hold
    table.refuse_where(beyond, name, "is not a finite float32 number")
    if gaps.all():
        table.refuse("has no value at all", column=name)
    column = numbers.fill_nan(0.0).fill_null(0.0).to_numpy()
    binary = bool(((column == 0) | (column == 1)).all())
    return column[:, None], np.flatnonzero(gaps.to_numpy()), "binary" if binary else "number"


_HINT = "; fill it in, or have missing values imputed (--missing impute)"
_SEPARATED = (
    "{} is neither a word nor a number; write numbers with a decimal point and without separators "
    "or signs, and words with a letter"
)


def _parsed(table: Table, name: str) -> pl.Series:
    """The numbers that a column of text spells: all of them, or true and false."""
    text = stripped(table.frame[name])
    numbers = text.cast(pl.Float32, strict=False)
    wrong = numbers.is_null() & text.is_not_null()
    if not wrong.any():
        return numbers
    lower = text.str.to_lowercase()
    booleans = lower.replace_strict(_BOOLEANS, default=None, return_dtype=pl.Float32)
    if booleans.null_count() > _words(text).null_count():
        table.refuse_where(wrong, name, "{} is not a number", text)
    return booleans


def _categories(
    table: Table, name: str, missing: str, kinds: tuple[str, ...] | None
) -> tuple[sparse.csr_array, Kind]:
    """A column of words as (n, categories) of 0 and 1, a missing one as zeros alone."""
    values = table.frame[name]
    if not (values.dtype in _WORDS or values.dtype.is_integer() or values.dtype == pl.Boolean):
        if values.dtype != pl.Null:
            table.refuse_type(name, "text")
        values = values.cast(pl.String)
    text = _words(values)
    if missing == "refuse":
        table.refuse_where(text.is_null(), name, f"is empty{_HINT}")
    if kinds is None:
        kinds = _found(table, name, text)
    else:
        why = f"{{}} is not among the agreed categories {listed(kinds)}"
        table.refuse_where(~text.is_in(list(kinds)), name, why, text)
    codes = text.cast(pl.Enum(kinds)).to_physical()
    rows = np.flatnonzero(codes.is_not_null().to_numpy())
    columns = codes.drop_nulls().to_numpy().astype(np.int64)
    ones = np.ones(len(rows), dtype=np.float32)
    return sparse.csr_array((ones, (rows, columns)), shape=(len(text), len(kinds))), kinds


def _found(table: Table, name: str, text: pl.Series) -> tuple[str, ...]:
    """The categories of a column of words, unless they are something else."""
    if table.is_csv:
        table.refuse_where(separated(text), name, _SEPARATED, text)
    known = text.drop_nulls()
    kinds, count = tuple(sorted(known.unique().to_list())), len(known)
    if len(kinds) > MAX_CATEGORIES or (len(kinds) == count and count > 1):
        if known.cast(pl.Float32, strict=False).null_count() == 0:
            table.refuse("holds numbers as text; store them as numbers", column=name)
        table.refuse(
            f"has {len(kinds)} different words for {count} nodes, so that it looks like an "
            f"identifier; leave it out, keep at most {MAX_CATEGORIES} that repeat, or, if other "
            f"parties know nodes by it, take it as a key: --match {name}",
            column=name,
        )
    return kinds
