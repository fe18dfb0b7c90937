"""One table as columns, where every mistake has a place to point at.

Files are CSV or TSV, plain or compressed (``.gz``, ``.zst``), or Parquet. Semicolons may stand
between the columns of a CSV, and decimal commas in its numbers then.
"""

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
import polars as pl

from fedcover.errors import DataError, listed, shown
from fedcover.files import check_regular
from fedcover.graphs.compressed import check_expansion, check_parquet, unpacked
from fedcover.graphs.schema import Schema
from fedcover.graphs.spelling import NANS, as_integers, meanings, names_of, with_points

SUFFIXES = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst", ".parquet")
"""What the names of tables end in."""

PROBED_ROWS = 1_000  # from which it is guessed which columns hold words; a wrong guess costs time
_NAME_TYPES = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)
_INDEX = re.compile(r"|Unnamed: [0-9]+|__index_level_[0-9]+__")  # pandas' numbers of rows
_IDS = ("id", "source", "target", "node", "other")
_CELL = 4  # bytes of a value in memory
# Polars reports a file that it did not foresee by a panic, which is no Exception.
_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)


class Table:
    """The columns of a file, read at once, of which those ``needed`` must be there.

    Columns that mean one of ``wanted`` (:mod:`fedcover.graphs.spelling`) go by that name, others,
    and features of the ``schema``, by their own. CSV knows no types: wanted columns are read as
    strings, and so are the ones that hold words, by the schema or by looking; the rest as float32.
    Without ``others``, only wanted columns are used.
    Errors name the file and the line (CSV, counted from 1 with the header) or the row (Parquet,
    counted from 1), and the column as the file spells it.
    """

    kind = "column"

    def __init__(
        self,
        path: Path,
        wanted: Collection[str],
        needed: Iterable[str],
        schema: Schema | None = None,
        others: bool = True,
    ) -> None:
        check_regular(path)
        self.path, self.name = path, str(path)
        self.is_csv = path.suffix != ".parquet"
        self._delimiter = "\t" if ".tsv" in path.suffixes[-2:] else ","
        self.spelt: dict[str, str] = {}  # how the file spells each column
        content = self._content() if self.is_csv else b""
        self._header = self._csv_header(content) if self.is_csv else self._parquet_header()
        agreed = {} if schema is None else dict(schema.features)
        columns = meanings(self._header, wanted, agreed)
        self._note_names(columns, wanted)
        if others:
            self._refuse_index(columns, agreed)
        for column in needed:
            if column not in self.spelt:
                self._refuse_separator()
                name, *synonyms = names_of(column)
                nor = f" (nor {', '.join(synonyms)})" if synonyms else ""
                self.refuse(f"has no column {shown(name)}{nor}; it has {listed(self._header)}")
        used = [column for column in columns if others or column in wanted]
        if not self.is_csv:
            spelt = dict(zip(columns, self._header, strict=True))
            self.frame = self._read_parquet({column: spelt[column] for column in used})
            return
        features = [column for column in used if column not in wanted]
        words = [name for name in agreed if isinstance(agreed[name], tuple)] if schema else None
        self.frame = self._read_csv(content, columns, features, words)
        if self.frame[self.frame.columns[-1]].has_nulls():
            self._refuse_short_rows(content)

    def text(self, column: str, empty: bool = False) -> pl.Series:
        """A column of names: strings or integers, without blanks around them.

        None of them is empty, unless it may be (null); NaN is, but for an id.
        """
        values = self.frame[column]
        if values.dtype == pl.Null and (empty or values.is_empty()):
            return values.cast(pl.String)
        values = as_integers(values)
        if not (values.dtype.is_integer() or values.dtype in _NAME_TYPES):
            self.refuse_type(column, "text or integers")
        if not values.dtype.is_integer():
            values = values.cast(pl.String).str.strip_chars()
            none = [""] if column in _IDS else ["", *NANS]
            if (found := values.is_in(none).fill_null(False)).any():
                values = values.set(found, None)
            values = as_integers(values)
        if not empty:
            self.refuse_where(values.is_null(), column, "is empty")
        return values.cast(pl.String)

    def refuse_where(
        self, wrong: pl.Series, column: str, what: str, values: pl.Series | None = None
    ) -> None:
        """Refuse the file if a row is wrong, naming the first such; its value goes where {} is."""
        if wrong.any():
            row = int(wrong.fill_null(False).arg_max() or 0)
            if values is not None:
                what = what.replace("{}", shown(str(values[row])), 1)
            self.refuse(what, row=row, column=column)

    def refuse(self, what: str, *, row: int | None = None, column: str | None = None) -> NoReturn:
        """Raise the error: file, place, what is the matter."""
        place = "" if row is None else f", {self.place(row)}"
        if column is not None:
            place += f", {self.kind} {shown(self.spelt.get(column, column))}"
        what = " ".join(what.splitlines())  # a name in it may be of several lines
        raise DataError(f"{self.name}{place}{':' if place else ''} {what}.")

    def refuse_type(self, column: str, wanted: str) -> NoReturn:
        """Refuse a column for its type."""
        what = f"has the type {listed([str(self.frame[column].dtype)])}, not {wanted}"
        self.refuse(what, column=column)

    def place(self, row: int) -> str:
        """What errors call a row."""
        return f"line {self._line(row)}" if self.is_csv else f"row {row + 1}"

    def _note_names(self, columns: Sequence[str], wanted: Collection[str]) -> None:
        """Note how the file spells each column; two that are the same are refused."""
        row = -1 if self.is_csv else None
        for name, column in zip(map(str.strip, self._header), columns, strict=True):
            if column not in self.spelt:
                self.spelt[column] = name
            elif column in wanted and self.spelt[column] != name:
                both = f"{shown(self.spelt[column])} and {shown(name)}"
                what = f"the columns {both} both mean {shown(column)}; keep or rename one of them"
                self.refuse(what, row=row)
            else:
                self.refuse("stands twice in the header", row=row, column=name)

    def _refuse_index(self, columns: Sequence[str], agreed: Collection[str]) -> None:
        """Refuse numbers of rows, which would pass for a feature."""
        for position, column in enumerate(columns, 1):
            if _INDEX.fullmatch(column) and column not in agreed:
                what = f"calls column {position} {shown(column)}"
                hint = "; if it is the index of pandas, write the table without it (index=False)"
                if column == "":
                    what, hint = f"has no name for column {position}", hint if position == 1 else ""
                self.refuse(what + hint, row=-1 if self.is_csv else None)

    def _parquet_header(self) -> list[str]:
        """The columns of a Parquet file, once its size in memory is known to be bounded."""
        check_parquet(self.path)
        try:
            scan = pl.scan_parquet(self.path, glob=False)
            header = list(scan.collect_schema())
            rows = scan.select(pl.len()).collect().item()
        except _UNREADABLE:
            self.refuse("is not a readable Parquet file")
        check_expansion(self.path, rows * max(len(header), 1) * _CELL)
        return header

    def _read_parquet(self, columns: dict[str, str]) -> pl.DataFrame:
        """The columns, given by what they mean and are called in the file."""
        try:
            frame = pl.read_parquet(self.path, glob=False, columns=list(columns.values()))
            frame = frame.select(pl.col(name).alias(column) for column, name in columns.items())
            longest = [_longest(values) for values in frame]
        except _UNREADABLE:
            self.refuse("is not a readable Parquet file")
        # Here a word is held once, however often it stands there; its copies come with any change.
        check_expansion(self.path, frame.height * sum(longest))
        return frame

    def _content(self) -> bytes:
        """The text of a CSV file, unpacked."""
        packed = self.path.suffix in (".gz", ".zst")
        try:
            content = unpacked(self.path) if packed else self.path.read_bytes()
        except OSError:
            self.refuse("is not a readable file")
        try:
            content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            what = "is not text in UTF-8; save the file with that encoding"
            raise DataError(f"{self.path}, line {line}: {what}.") from None
        return content

    def _csv_header(self, content: bytes) -> list[str]:
        """The columns' names; semicolons separate them if that makes more of them."""
        try:
            records = self._reader(content, strict=False)
            header: list[str] = next(records, [])
            lines = list(islice(_text(content), records.line_num))
            with_semicolons = next(csv.reader(lines, delimiter=";"), [])
        except csv.Error:
            self.refuse("is not a readable CSV file")
        if self._delimiter == "," and len(with_semicolons) > len(header):
            self._delimiter, header = ";", with_semicolons
        if lines and lines[-1].endswith("\r"):  # polars would read on to the next LF
            self.refuse("ends its lines with CR alone; save it with LF or CRLF line ends")
        if lines and lines[0].lower().startswith("sep="):
            what = "is a line for Excel alone; take it out, the columns' names come first"
            self.refuse(what, row=-1)
        if not header:
            self.refuse("is empty, but its first line must name the columns")
        return header

    def _read_csv(
        self, content: bytes, columns: list[str], features: list[str], words: list[str] | None
    ) -> pl.DataFrame:
        types: dict[str, type[pl.DataType]] = dict.fromkeys(columns, pl.String)
        ends_open = content.endswith(f'{self._delimiter}"'.encode())  # on which polars would panic
        if features and self._delimiter != ";" and not ends_open:
            with suppress(*_UNREADABLE):  # there are words where none were seen, or it is broken
                if words is None:
                    probe = self._polars(content, types, PROBED_ROWS).select(features)
                    parsed = probe.cast(pl.Float32, strict=False).null_count().row(0)
                    more = zip(features, probe.null_count().row(0), parsed, strict=True)
                    words = [name for name, empty, unread in more if unread > empty]
                numbers = [name for name in features if name not in words]
                return self._polars(content, types | dict.fromkeys(numbers, pl.Float32))
        try:
            frame = self._polars(content, types)
        except _UNREADABLE:
            self._explain(content)
        if self._delimiter == ";":
            numbers = [name for name in features if name not in (words or ())]
            frame = with_points(frame, numbers, self.refuse_where)
        return frame

    def _polars(
        self, content: bytes, types: dict[str, type[pl.DataType]], rows: int | None = None
    ) -> pl.DataFrame:
        spelt = dict(zip(self._header, types.values(), strict=True))
        frame = pl.read_csv(content, schema=spelt, separator=self._delimiter, n_rows=rows)
        frame.columns = list(types)
        return _without_empty_end(frame)

    def _refuse_separator(self) -> None:
        """Refuse a header that is one name because something else stands between its columns."""
        for other, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
            if self.is_csv and len(self._header) == 1 and other in self._header[0]:
                good = "tabs" if self._delimiter == "\t" else "commas or semicolons"
                self.refuse(f"has {name} between its columns, which must be {good}")

    def _refuse_short_rows(self, content: bytes) -> None:
        """Refuse a row that ends before its last column, which would pass for empty values."""
        with suppress(csv.Error):  # where csv and polars differ, polars has read it
            for row, record in enumerate(self._reader(content), -1):
                if 1 < len(record) < len(self._header):
                    self._refuse_width(row, record)

    def _explain(self, content: bytes) -> NoReturn:
        """Find out why polars could not read the file: perhaps a row is too wide."""
        row = -1  # the header
        try:
            for row, record in enumerate(self._reader(content), -1):
                if len(record) > len(self._header):
                    self._refuse_width(row, record)
        except csv.Error:
            self.refuse("a quote in it is not closed, or stands within a word", row=row + 1)
        self.refuse("is not a readable CSV file")

    def _refuse_width(self, row: int, record: Sequence[str]) -> NoReturn:
        self.refuse(f"has {len(record)} fields, but the header has {len(self._header)}", row=row)

    def _line(self, row: int) -> int:
        """The line where a row starts: a quoted field may span several (row -1: the header)."""
        records = self._reader(self._content(), strict=False)
        with suppress(StopIteration, csv.Error):
            for _ in range(row + 1):
                next(records)  # polars may tell rows apart otherwise than csv: this far they agree
        return int(records.line_num) + 1

    def _reader(self, content: bytes, strict: bool = True) -> Any:
        return csv.reader(_text(content), strict=strict, delimiter=self._delimiter)


def _text(content: bytes) -> TextIO:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")


def _without_empty_end(frame: pl.DataFrame) -> pl.DataFrame:
    """Without the empty lines that many programs leave at the end of a file."""
    if frame.is_empty() or any(value is not None for value in frame.row(-1)):
        return frame
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().to_numpy()
    return frame.head(int(np.flatnonzero(filled).max(initial=-1)) + 1)


def _longest(values: pl.Series) -> int:
    """Bytes of the longest text in a column; 0 if it holds none."""
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.unique().cast(pl.String)
    if values.dtype != pl.String:
        return 0
    return int(values.str.len_bytes().fill_null(0).to_numpy().max(initial=0))


def find_table(folder: Path, stem: str) -> Path | None:
    """The file of this name in the folder; several of them are refused."""
    found = [folder / f"{stem}{end}" for end in SUFFIXES if (folder / f"{stem}{end}").exists()]
    if len(found) > 1:
        names = " and ".join(file.name for file in found[:2])
        raise DataError(f"{folder} has both {names}; keep one of them.")
    return found[0] if found else None
