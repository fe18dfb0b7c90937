"""Read a run folder for its page; what is missing or damaged is said in one sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fedcover import tables
from fedcover.errors import DataError


@dataclass(frozen=True)
class Stored:
    """A run as it lies on disk; the last five are None where an older run did not write them."""

    info: dict[str, Any]
    results: pl.DataFrame
    groups: pl.DataFrame
    ledger: pl.DataFrame | None
    sets: pl.DataFrame | None  # the first seed's, of nodes that are shown
    nodes: pl.DataFrame | None
    edges: pl.DataFrame | None
    scores: pl.DataFrame | None
    thresholds: pl.DataFrame | None = None  # where clients, classes or groups have their own


def read_folder(folder: Path) -> Stored:
    """All tables of a run folder, with the columns of :mod:`fedcover.tables`."""
    if not folder.exists():
        raise DataError(f"{folder} does not exist; give a run folder, as fedcover run writes it.")
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; give a run folder, as fedcover run writes it.")
    if not tables.holds_run(folder):
        raise DataError(
            f"{folder} is not a run folder: it holds no {tables.MARK} that fedcover wrote; give "
            "one that fedcover run has written."
        )
    info = json.loads((folder / tables.MARK).read_bytes())
    results = _table(folder / "results.csv", tables.RESULTS)
    groups = _table(folder / "groups.csv", tables.GROUPS)
    if results.is_empty():
        raise DataError(f"{folder / 'results.csv'} has no rows; run fedcover run again.")
    ledger = _optional(folder / "ledger.parquet", tables.LEDGER)
    nodes = edges = scores = sets = None
    if all((folder / f"{name}.parquet").exists() for name in tables.DRAWING):
        grouped = tables.GROUPED_NODES if info.get("graph", {}).get("group_names") else tables.NODES
        schemas = (grouped, tables.EDGES, tables.SCORES)
        nodes, edges, scores = (
            _table(folder / f"{name}.parquet", schema)
            for name, schema in zip(tables.DRAWING, schemas, strict=True)
        )
        sets = _sets(folder / "sets.parquet", int(results["seed"][0]), nodes["node"])
    thresholds = _optional(folder / "thresholds.csv", tables.THRESHOLDS)
    return Stored(info, results, groups, ledger, sets, nodes, edges, scores, thresholds)


def _sets(path: Path, seed: int, shown: pl.Series) -> pl.DataFrame:
    """The first seed's sets of the nodes that are shown; a large file is not read whole."""
    try:
        wanted = pl.scan_parquet(path, glob=False).filter(
            pl.col("seed") == seed, pl.col("node").is_in(shown.implode())
        )
        return wanted.select("method", "score", "quantile", "alpha", "node", "set").collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from error


def _optional(path: Path, schema: tables.Columns) -> pl.DataFrame | None:
    return _table(path, schema) if path.exists() else None


def _table(path: Path, schema: tables.Columns) -> pl.DataFrame:
    try:
        if path.suffix == ".csv":
            return pl.read_csv(path, glob=False, schema_overrides=schema).select(*schema)
        return pl.read_parquet(path, glob=False).select(
            pl.col(name).cast(kind) for name, kind in schema.items()
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} is missing; a run folder must hold it.")
    reason = str(error).strip().split("\n")[0].rstrip(".")
    return DataError(f"{path} cannot be read as a table of a run: {reason}.")
