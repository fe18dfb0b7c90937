"""Numbers with a decimal comma, as they stand in files that have semicolons between columns."""

from collections.abc import Iterable

import polars as pl

from fedcover.graphs.wording import shown

_COMMA = r"^\s*[-+]?(\d+,\d*|,\d+)([eE][-+]?\d+)?\s*$"
_POINT = r"^\s*[-+]?(\d+\.\d*|\.\d+)([eE][-+]?\d+)?\s*$"
_BOTH = r"^\s*[-+]?\d[\d.]*\.\d+,\d+\s*$|^\s*[-+]?\d[\d,]*,\d+\.\d+\s*$"


class AmbiguousNumberError(ValueError):
    """A number that could be another one; ``row`` and ``column`` are where it stands."""

    def __init__(self, what: str, row: int, column: str) -> None:
        super().__init__(what)
        self.row, self.column = row, column


def with_points(frame: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    """The frame with decimal points in these columns of text, words as they are.

    Where commas stand for points, a point would be something else: it is refused.

    >>> with_points(pl.DataFrame({"x": ["1,5", "2"], "y": ["a,b", None]}), ["x", "y"]).rows()
    [('1.5', 'a,b'), ('2', None)]
    """
    columns = list(columns)
    for name in columns:
        _refuse(frame, name, _BOTH, "has a point and a comma; write numbers without separators")
    spelt = {name: frame[name].str.contains(_COMMA).fill_null(False) for name in columns}
    with_commas = [name for name, found in spelt.items() if found.any()]
    if not with_commas:
        return frame
    for name in columns:
        why = f"has a decimal point, but the column {shown(with_commas[0])} has decimal commas"
        _refuse(frame, name, _POINT, why)
    return frame.with_columns(
        pl.when(spelt[name]).then(pl.col(name).str.replace(",", ".", literal=True)).otherwise(name)
        .alias(name)
        for name in with_commas
    )  # fmt: skip


def _refuse(frame: pl.DataFrame, name: str, pattern: str, why: str) -> None:
    found = frame[name].str.contains(pattern).fill_null(False)
    if found.any():
        row = int(found.arg_max() or 0)
        raise AmbiguousNumberError(f"{shown(frame[name][row])} {why}", row, name)
