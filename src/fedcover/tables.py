"""The files of a run folder and their columns, which other programs rely on."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

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

RATES = ("coverage", "set_size", "singleton_rate", "empty_rate")
SPLIT = "coverage_split"  # of the split that was calibrated
_WORST = ("min_client_coverage", "class_coverage_gap")
HITS, SLAB = "singleton_hits", "worst_slab_coverage"
LATER = (SPLIT, HITS, SLAB)
"""Columns of results that earlier versions had not."""

RESULTS: Columns = {
    "dataset": pl.String,
    "clients": pl.Int64,
    "partition": pl.String,
    "method": pl.String,
    "model": pl.String,
    **_CELL,
    "n_calibration": pl.Int64,
    "n_test": pl.Int64,
    **dict.fromkeys(("q_hat", "coverage", SPLIT, *RATES[1:], HITS, SLAB, *_WORST), pl.Float64),
    **dict.fromkeys(("accuracy", "train_seconds"), pl.Float64),
}
GROUPS: Columns = {
    **_GROUP,
    **dict.fromkeys(("n_test", "coverage", "coverage_sd", "set_size", "set_size_sd"), pl.Float64),
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
    **dict.fromkeys(("node", "client", "label"), pl.String),
    "set": pl.List(pl.String),
    "size": pl.Int64,
    "covered": pl.Boolean,
}
LEDGER: Columns = {
    "method": pl.String,
    "seed": pl.Int64,
    **dict.fromkeys(("kind", "part", "array", "direction", "client"), pl.String),
    "round": pl.Int64,
    "rounds": pl.Int64,
    "type": pl.String,
    "shape": pl.List(pl.Int64),
    "bytes": pl.Int64,
}
SCORES: Columns = {
    **dict.fromkeys(("method", "score", "node"), pl.String),
    "probs": pl.List(pl.Float32),
    "scores": pl.List(pl.Float32),
}
NODES: Columns = {
    **dict.fromkeys(("node", "client", "role", "label"), pl.String),
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
    return pl.DataFrame([*rows], schema=columns)


def spelt(names: Sequence[str | None], numbers: NDArray[np.integer]) -> pl.Series:
    """Each number's name; -1 takes the last."""
    return pl.Series(names, dtype=pl.String).gather(numbers)


def with_later(results: pl.DataFrame) -> pl.DataFrame:
    """Results of an earlier version, with the columns that it had not, empty."""
    missing = [name for name in LATER if name not in results.columns]
    return results.with_columns(pl.lit(None, pl.Float64).alias(name) for name in missing)


def holds_run(folder: Path) -> bool:
    """Whether a run is there: its ``run.json`` says that fedcover wrote it."""
    try:
        info = json.loads((folder / MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(info, dict) and "fedcover" in info


def sets_frame(
    ids: ArrayLike,
    client: pl.Series,
    y: NDArray[np.integer],
    labels: Sequence[str],
    sets: NDArray[np.bool_],
    **key: Any,
) -> pl.DataFrame:
    """``sets.parquet``: each node's set by label names, and whether the true label is in it; both
    are empty where that label is not known (-1). ``key`` is what all rows begin with."""
    from fedcover.graphs.labels import spelt_sets  # loads torch

    label = spelt([*labels, None], y)
    rows = {
        "node": pl.Series(np.asarray(ids)).cast(pl.String),
        "client": client,
        "label": label,
        "set": spelt_sets(sets, labels),
        "size": sets.sum(axis=1),
        "covered": sets[np.arange(len(y)), y],
    }
    covered = pl.when(label.is_not_null()).then("covered").alias("covered")
    named = [pl.lit(value, SETS[name]).alias(name) for name, value in key.items()]
    return pl.DataFrame(rows).select(*named, pl.exclude("covered"), covered)


def ledger_frame(
    method: str, seed: int, names: Sequence[str], entries: Iterable[Entry]
) -> pl.DataFrame:
    """One row an array that travelled in one round, or alike in several, at one party."""
    own = {"method": method, "seed": seed}
    rows = ({**own, "kind": kind_of(e.part), "client": names[e.party], **vars(e)} for e in entries)
    return frame(rows, LEDGER)
