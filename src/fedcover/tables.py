"""The files of a run folder and their columns, which other programs rely on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fedcover.ledger import Entry, kind_of

MARK = "run.json"
PAGE = "report.html"
DRAWING = ("nodes", "edges", "scores")  # tables of the first seed, for the page

Columns = dict[str, Any]

_CELL: Columns = {
    "method": pl.String,
    "score": pl.String,
    "quantile": pl.String,
    "alpha": pl.Float64,
    "seed": pl.Int64,
}
KEY = tuple(_CELL)
"""What no two rows of a run share, apart from the node or group that they are about."""
_GROUP: Columns = {**_CELL, "kind": pl.String, "group": pl.String}

RESULTS: Columns = {
    "dataset": pl.String,
    "clients": pl.Int64,
    "partition": pl.String,
    "method": pl.String,
    "model": pl.String,
    "score": pl.String,
    "quantile": pl.String,
    "alpha": pl.Float64,
    "seed": pl.Int64,
    "n_calibration": pl.Int64,
    "n_test": pl.Int64,
    "q_hat": pl.Float64,
    "coverage": pl.Float64,
    "set_size": pl.Float64,
    "singleton_rate": pl.Float64,
    "empty_rate": pl.Float64,
    "min_client_coverage": pl.Float64,
    "class_coverage_gap": pl.Float64,
    "accuracy": pl.Float64,
    "train_seconds": pl.Float64,
}
GROUPS: Columns = {
    **_GROUP,
    "n_test": pl.Float64,
    "coverage": pl.Float64,
    "coverage_sd": pl.Float64,
    "set_size": pl.Float64,
    "set_size_sd": pl.Float64,
}
THRESHOLDS: Columns = {
    **_GROUP,
    "n_calibration": pl.Int64,
    "clients": pl.Int64,
    "q_hat": pl.Float64,
    "fell_back": pl.Boolean,
}
SETS: Columns = {
    **_CELL,
    "node": pl.String,
    "client": pl.String,
    "label": pl.String,
    "set": pl.List(pl.String),
    "size": pl.Int64,
    "covered": pl.Boolean,
}
LEDGER: Columns = {
    "method": pl.String,
    "seed": pl.Int64,
    "kind": pl.String,
    "part": pl.String,
    "array": pl.String,
    "direction": pl.String,
    "client": pl.String,
    "round": pl.Int64,
    "rounds": pl.Int64,
    "type": pl.String,
    "shape": pl.List(pl.Int64),
    "bytes": pl.Int64,
}
SCORES: Columns = {
    "method": pl.String,
    "score": pl.String,
    "node": pl.String,
    "probs": pl.List(pl.Float32),
    "scores": pl.List(pl.Float32),
}
NODES: Columns = {
    "node": pl.String,
    "client": pl.String,
    "role": pl.String,
    "label": pl.String,
    "boundary": pl.Boolean,
    "degree": pl.Int64,
    "lost": pl.Int64,
    "x": pl.Float32,
    "y": pl.Float32,
}
GROUPED_NODES: Columns = {**NODES, "group": pl.String}  # of a graph whose nodes are in groups
EDGES: Columns = {"source": pl.String, "target": pl.String, "cut": pl.Boolean}


def frame(rows: Iterable[Mapping[str, Any]], columns: Columns) -> pl.DataFrame:
    """Rows as a table with exactly these columns."""
    return pl.DataFrame([dict(row) for row in rows], schema=columns)


def holds_run(folder: Path) -> bool:
    """Whether a run is there: its ``run.json`` says that fedcover wrote it."""
    try:
        info = json.loads((folder / MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(info, dict) and "fedcover" in info


def ledger_frame(
    method: str, seed: int, names: Sequence[str], entries: Iterable[Entry]
) -> pl.DataFrame:
    """One row an array that travelled in one round, or alike in several, at one party."""
    rows = [
        (
            method,
            seed,
            kind_of(e.part),
            e.part,
            e.array,
            e.direction,
            names[e.party],
            e.round,
            e.rounds,
            e.type,
            list(e.shape),
            e.bytes,
        )
        for e in entries
    ]
    return pl.DataFrame(rows, schema=LEDGER, orient="row")
