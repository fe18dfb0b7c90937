"""The store: one Parquet file a cell, written beside and renamed.

Whatever kills a process, a cell is there whole or not at all. Two processes share the work: who
holds a cell's lock computes it, and the operating system gives the lock back when he dies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from filelock import FileLock, Timeout

from fedcover.errors import DataError
from fedcover.paper.files import read_rows, write_rows
from fedcover.paper.grid import Cell
from fedcover.paper.rows import ROWS


class Store:
    """Finished cells in a folder; ``polars.read_parquet(folder / "*.parquet")`` reads them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.locks = folder / "locks"
        try:
            self.locks.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{folder} cannot be written: {error.strerror}.") from error

    def path(self, cell: Cell) -> Path:
        """Where the cell's rows are, or would be."""
        return self.folder / f"{cell.key}.parquet"

    def holds(self, cell: Cell) -> bool:
        """Whether the cell is finished."""
        return self.path(cell).is_file()

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Those that are not finished, in the given order."""
        return [cell for cell in cells if not self.holds(cell)]

    def read(self, cells: Iterable[Cell]) -> pl.DataFrame:
        """The rows of finished cells."""
        frames = []
        for cell in cells:
            rows = read_rows(self.path(cell))
            # A variant's name is not in the key: it may have changed since.
            named = (pl.lit(cell.preset).alias("preset"), pl.lit(cell.variant).alias("variant"))
            frames.append(rows.with_columns(named))
        return pl.concat(frames) if frames else pl.DataFrame(schema=ROWS)

    def write(self, cell: Cell, rows: pl.DataFrame) -> None:
        """Add a finished cell: it appears with one rename."""
        write_rows(self.path(cell), rows)

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Whether the cell is ours to compute, as long as the block lasts."""
        lock = FileLock(self.locks / f"{cell.key}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()
