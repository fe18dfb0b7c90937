"""A predictor's sets as a file: CSV, Parquet or JSON, by its ending."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from fedcover.errors import UsageError
from fedcover.files import write_whole

BETWEEN = "; "
"""Stands between the labels of a set in a CSV file, which has no lists."""


def _csv(table: pl.DataFrame) -> bytes:
    return table.with_columns(pl.col("set").list.join(BETWEEN)).write_csv().encode()


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def _json(table: pl.DataFrame) -> bytes:
    return table.write_json().encode()


KINDS: dict[str, Callable[[pl.DataFrame], bytes]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".json": _json,
}


def check_kind(path: Path) -> None:
    """Refuse, before any work, a file whose ending says nothing, or that is a folder."""
    if path.suffix not in KINDS:
        raise UsageError(f"{path} must end in one of {', '.join(KINDS)}.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; --out must name a file.")


def check_labels(labels: Sequence[str], path: Path) -> None:
    """Refuse, before any work, labels that could not be told apart in the file."""
    wrong = [label for label in labels if BETWEEN.strip() in label]
    if path.suffix == ".csv" and wrong:
        raise UsageError(
            f"the label {wrong[0]!r} has a semicolon, which stands between labels in a CSV file; "
            f"write {path.stem}.parquet or {path.stem}.json."
        )


def write_sets(table: pl.DataFrame, path: Path) -> None:
    """Write the table whole or not at all."""
    check_kind(path)
    write_whole(path, KINDS[path.suffix](table))
