"""Files of results, each whole or absent."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl

from fedcover.errors import DataError
from fedcover.files import write_whole
from fedcover.paper.rows import ROWS
from fedcover.paper.tables import Table, latex, markdown


def write(path: Path, content: bytes) -> None:
    """Write beside and rename; a file with the same content is left alone."""
    try:
        if not (path.is_file() and path.read_bytes() == content):
            write_whole(path, content)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from error


def write_target(out: Path, name: str, table: Table, figures: dict[str, bytes]) -> None:
    """One target's files: ``NAME.md``, ``.tex``, ``.csv``, and ``.svg``, ``.png`` of a figure."""
    write(out / f"{name}.md", markdown(table).encode())
    write(out / f"{name}.tex", latex(table).encode())
    write(out / f"{name}.csv", table.data.write_csv().encode())
    for extra, smaller in table.extra.items():
        write(out / f"{name}-{extra}.md", markdown(smaller).encode())
        write(out / f"{name}-{extra}.tex", latex(smaller).encode())
    for kind, content in figures.items():
        write(out / f"{name}.{kind}", content)


def write_rows(path: Path, rows: pl.DataFrame) -> None:
    """The rows behind the tables."""
    file = io.BytesIO()
    rows.write_parquet(file, compression="zstd", compression_level=15)
    write(path, file.getvalue())


def read_rows(path: Path) -> pl.DataFrame:
    """The rows that were written with the tables."""
    if not path.is_file():
        raise DataError(f"{path} does not exist; make it with fedcover paper TARGET.")
    try:
        return pl.read_parquet(path, glob=False).select(ROWS.names()).cast(ROWS)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path} cannot be read; delete it and run again: {reason}.") from error
