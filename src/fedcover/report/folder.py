"""Read a run folder for its page; what is missing or damaged is said in one sentence."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fedcover import tables
from fedcover.errors import DataError


@dataclass(frozen=True)
class Stored:
    """A run as it lies on disk; an older run has no ledger and no drawing."""

    info: dict[str, Any]
    results: pl.DataFrame
    groups: pl.DataFrame
    ledger: pl.DataFrame | None
    thresholds: pl.DataFrame | None  # where clients, classes or groups have their own
    drawing: dict[str, pl.DataFrame]  # nodes, edges, scores, and the first seed's sets


def read_folder(folder: Path) -> Stored:
    """All tables of a run folder, with the columns of :mod:`fedcover.tables`."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}; give a run folder, as fedcover run writes it.")
    if not tables.holds_run(folder):
        raise DataError(
            f"{folder} is not a run folder: it holds no {tables.MARK} that fedcover wrote; give "
            "one that fedcover run has written."
        )
    info = json.loads((folder / tables.MARK).read_bytes())
    results = _table(folder / "results.csv", tables.RESULTS)
    if results.is_empty():
        raise DataError(f"{folder / 'results.csv'} has no rows; run fedcover run again.")
    drawing = {}
    if all((folder / f"{name}.parquet").exists() for name in tables.DRAWING):
        grouped = tables.GROUPED_NODES if info.get("graph", {}).get("group_names") else tables.NODES
        schemas = zip(tables.DRAWING, (grouped, tables.EDGES, tables.SCORES), strict=True)
        drawing = {name: _table(folder / f"{name}.parquet", schema) for name, schema in schemas}
        shown = drawing["nodes"]["node"]
        drawing["sets"] = _sets(folder / "sets.parquet", int(results["seed"][0]), shown)
    return Stored(
        info,
        results,
        _table(folder / "groups.csv", tables.GROUPS),
        _optional(folder / "ledger.parquet", tables.LEDGER),
        _optional(folder / "thresholds.csv", tables.THRESHOLDS),
        drawing,
    )


def _sets(path: Path, seed: int, shown: pl.Series) -> pl.DataFrame:
    """The first seed's sets of the nodes that are shown; a large file is not read whole."""
    with _readable(path):
        wanted = pl.scan_parquet(path, glob=False).filter(
            pl.col("seed") == seed, pl.col("node").is_in(shown.implode())
        )
        return wanted.select("method", "score", "quantile", "alpha", "node", "set").collect()


def _optional(path: Path, schema: tables.Columns) -> pl.DataFrame | None:
    return _table(path, schema) if path.exists() else None


def _table(path: Path, schema: tables.Columns) -> pl.DataFrame:
    with _readable(path):
        if path.suffix == ".csv":
            read = pl.read_csv(path, glob=False, schema_overrides=schema)
            if tables.SPLIT in schema:
                read = tables.with_later(read)
            return read.select(*schema)
        columns = [pl.col(name).cast(kind) for name, kind in schema.items()]
        return pl.read_parquet(path, glob=False).select(columns)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; a run folder must hold it.") from error
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise DataError(f"{path} cannot be read as a table of a run: {reason}.") from error
