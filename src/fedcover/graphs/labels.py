"""Names to numbers and back: how labels, and clients, of an own graph are counted and spelt."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeGuard

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover.errors import UsageError

NO_LABEL = -1  # the number of a label that is not known

MOST_LABELS = 100  # so many different labels are classes, however few nodes there are
_INTEGER = re.compile(r"-?[0-9]+")


def encode(
    values: pl.Series | NDArray[np.generic] | Sequence[str], names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], list[str]]:
    """Number the distinct values in order: by size if all are integers, else as text.

    With ``names``, they are numbered by their place among these, which must hold them all. A null
    is no label (-1).

    >>> codes, names = encode(["10", "9", "10"])
    >>> codes.tolist(), names
    ([1, 0, 1], ['9', '10'])
    """
    text = pl.Series(values).cast(pl.String)
    if names is None:
        names = sorted(text.drop_nulls().unique().to_list())
        if all(_INTEGER.fullmatch(name) for name in names):
            names.sort(key=Decimal)  # of any length, where int has a limit
    codes = text.cast(pl.Enum(names)).to_physical().cast(pl.Int64)
    return codes.fill_null(NO_LABEL).to_numpy(writable=True), list(names)


def spelt_sets(sets: NDArray[np.bool_], label_names: Sequence[str]) -> pl.Series:
    """Each row's labels by name."""
    # Few different sets occur, so each is spelt out once and then looked up.
    patterns, which = np.unique(np.packbits(sets, axis=1), axis=0, return_inverse=True)
    members = np.unpackbits(patterns, axis=1, count=sets.shape[1]).astype(bool)
    names = np.array(label_names, dtype=object)
    spelt = pl.Series("set", [names[row].tolist() for row in members], dtype=pl.List(pl.String))
    return spelt.gather(which.ravel())


def is_none(value: Any) -> bool:
    """Whether a value says that there is none: None, NaN, or what pandas has for these."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer of Python or numpy; true and false are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_count(name: str, value: Any) -> int:
    """Refuse an argument that is no whole number of 1 or more."""
    if not is_integer(value) or value < 1:
        raise UsageError(f"{name} is {value!r}, but must be a whole number of 1 or more.")
    return value


def too_many(labels: int, nodes: int) -> str:
    """Say that labels are no classes if most stand at one node alone, as measured values do.

    >>> too_many(200, 300), too_many(200, 400), too_many(3, 3)
    ('has 200 different values for 300 nodes, too many for classes', '', '')
    """
    if labels <= max(MOST_LABELS, nodes / 2):
        return ""
    return f"has {labels:,} different values for {nodes:,} nodes, too many for classes"


def repeated(names: Sequence[object] | NDArray[np.generic]) -> str | None:
    """The first name that stands twice, compared as text; None if each stands once.

    >>> repeated(["a", "b", "a"]), repeated([1, 2])
    ('a', None)
    """
    numbers = isinstance(names, np.ndarray) and names.dtype.kind in "iu"
    values = pl.Series(names if numbers else [str(name) for name in names])
    again = values.filter(~values.is_first_distinct())
    return None if again.is_empty() else str(again[0])
