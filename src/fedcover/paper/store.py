"""The store: one Parquet file a cell, written beside and renamed.

Whatever kills a process, a cell is there whole or not at all. Two processes share the work: who
holds a cell's lock computes it, and the operating system gives the lock back when he dies.
"""

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl
from filelock import FileLock, Timeout

from fedcover.errors import DataError
from fedcover.files import write_whole
from fedcover.paper.grid import Cell
from fedcover.paper.rows import ROWS
from fedcover.tables import with_later


def write(path: Path, content: bytes) -> None:
    """Write beside and rename; a file with the same content is left alone."""
    try:
        if not (path.is_file() and path.read_bytes() == content):
            write_whole(path, content)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from error


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
        return with_later(pl.read_parquet(path, glob=False)).select(ROWS.names()).cast(ROWS)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path} cannot be read; delete it and run again: {reason}.") from error


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

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Whether the cell is ours to compute, as long as the block lasts."""
        lock = FileLock(self.locks / f"{cell.key}.lock")
        with suppress(Timeout):
            lock.acquire(timeout=0)
        try:
            yield lock.is_locked
        finally:
            lock.release()
