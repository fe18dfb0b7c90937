"""One CSV or Parquet file as columns, where every mistake has a place to point at."""

import csv
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover.errors import DataError

_NAME_TYPES = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)


class Table:
    """The columns of a file, read at once, of which those ``needed`` must be there.

    CSV knows no types: the columns of ``text`` (None: all) are read as strings, others as float32.
    Errors name the file and the line (CSV, counted from 1 with the header) or the row (Parquet,
    counted from 1), and the column.
    """

    def __init__(
        self, path: Path, needed: Iterable[str], text: Iterable[str] | None = None
    ) -> None:
        self.path = path
        self.is_csv = path.suffix == ".csv"
        columns = self._header() if self.is_csv else self._schema()
        for column in needed:
            if column not in columns:
                self.refuse(f"has no column {column!r}; it has {', '.join(columns)}")
        numeric = [] if text is None else [name for name in columns if name not in set(text)]
        self.frame = self._read_csv(columns, numeric) if self.is_csv else self._read_parquet()

    def text(self, column: str) -> pl.Series:
        """A column of names: strings or integers, none of them empty."""
        values = self.frame[column]
        if not (values.dtype.is_integer() or values.dtype in _NAME_TYPES):
            self.refuse(f"has the type {values.dtype}, not text or integers", column=column)
        values = values.cast(pl.String)
        self.refuse_where(values.is_null() | (values == ""), column, "is empty")
        return values

    def numbers(self, columns: list[str]) -> NDArray[np.float32]:
        """Columns of finite numbers as one float32 matrix."""
        matrix = np.empty((len(self.frame), len(columns)), dtype=np.float32)
        for position, column in enumerate(columns):
            values = self.frame[column]
            if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
                self.refuse(f"has the type {values.dtype}, not numbers", column=column)
            self.refuse_where(values.is_null(), column, "is empty")
            values = values.cast(pl.Float32, strict=False)
            self.refuse_where(~values.is_finite(), column, "is not a finite float32 number")
            matrix[:, position] = values.to_numpy()
        return matrix

    def refuse_where(self, wrong: pl.Series, column: str, what: str) -> None:
        """Refuse the file if a row is wrong, naming the first such."""
        if wrong.any():
            self.refuse(what, row=int(wrong.arg_max() or 0), column=column)

    def refuse(self, what: str, *, row: int | None = None, column: str | None = None) -> NoReturn:
        """Raise the error: file, place, what is the matter."""
        place = str(self.path)
        if row is not None:
            place += f", line {self._line(row)}" if self.is_csv else f", row {row + 1}"
        if column is not None:
            place += f", column {column!r}"
        raise DataError(f"{place}: {what}." if place != str(self.path) else f"{place} {what}.")

    def _schema(self) -> list[str]:
        try:
            return list(pl.read_parquet_schema(self.path))
        except (pl.exceptions.PolarsError, OSError):
            self.refuse("is not a readable Parquet file")

    def _read_parquet(self) -> pl.DataFrame:
        try:
            return pl.read_parquet(self.path)
        except (pl.exceptions.PolarsError, OSError):
            self.refuse("is not a readable Parquet file")

    def _read_csv(self, columns: list[str], numeric: list[str]) -> pl.DataFrame:
        types = dict.fromkeys(columns, pl.String) | dict.fromkeys(numeric, pl.Float32)
        try:
            return pl.read_csv(self.path, schema=types)
        except (pl.exceptions.PolarsError, OSError):
            self._explain(columns, numeric)

    def _header(self) -> list[str]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                records = csv.reader(file)
                header = next(records, [])
                file.seek(0)
                lines = list(islice(file, records.line_num))
        except (UnicodeDecodeError, csv.Error, OSError):
            self.refuse("is not a readable CSV file in UTF-8")
        if lines and lines[-1].endswith("\r"):  # polars would read on to the next LF
            self.refuse("ends its lines with CR alone; save it with LF or CRLF line ends")
        if not header:
            self.refuse("is empty, but its first line must name the columns")
        for position, name in enumerate(header):
            if name == "":
                self.refuse(f"has no name for column {position + 1}", row=-1)
            if name in header[:position]:
                self.refuse("stands twice in the header", row=-1, column=name)
        return header

    def _explain(self, columns: list[str], numeric: list[str]) -> NoReturn:
        """Find out why polars could not read the file: a wide row, or a word among numbers."""
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                records = csv.reader(file, strict=True)
                width = len(next(records))
                for row, record in enumerate(records):
                    if len(record) > width:
                        what = f"has {len(record)} fields, but the header has {width}"
                        self.refuse(what, row=row)
            strings = pl.read_csv(self.path, schema=dict.fromkeys(columns, pl.String))
        except (UnicodeDecodeError, csv.Error, pl.exceptions.PolarsError, OSError):
            self.refuse("is not a readable CSV file in UTF-8")
        for column in numeric:
            values = strings[column]
            wrong = values.str.strip_chars().cast(pl.Float32, strict=False).is_null()
            wrong &= values.is_not_null()
            if wrong.any():
                row = int(wrong.arg_max() or 0)
                self.refuse(f"{values[row]!r} is not a number", row=row, column=column)
        self.refuse("is not a readable CSV file")

    def _line(self, row: int) -> int:
        """The line where a row starts: a quoted field may span several (row -1: the header)."""
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            records = csv.reader(file)
            for _ in range(row + 1):
                next(records)
            return records.line_num + 1
