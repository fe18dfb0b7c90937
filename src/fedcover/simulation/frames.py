"""The tables of a run, with the columns that other programs rely on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover.graphs.labels import spelt_sets
from fedcover.ledger import Entry, kind_of
from fedcover.simulation.repetition import Repetition

KEY = ("method", "score", "quantile", "alpha", "seed")

RESULTS: dict[str, Any] = {
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

_OF_A_GROUP: dict[str, Any] = {
    "method": pl.String,
    "score": pl.String,
    "quantile": pl.String,
    "alpha": pl.Float64,
    "seed": pl.Int64,
    "kind": pl.String,
    "group": pl.String,
}

GROUPS: dict[str, Any] = {
    **_OF_A_GROUP,
    "n_test": pl.Float64,
    "coverage": pl.Float64,
    "coverage_sd": pl.Float64,
    "set_size": pl.Float64,
    "set_size_sd": pl.Float64,
}

THRESHOLDS: dict[str, Any] = {
    **_OF_A_GROUP,
    "n_calibration": pl.Int64,
    "clients": pl.Int64,
    "q_hat": pl.Float64,
    "fell_back": pl.Boolean,
}

LEDGER: dict[str, Any] = {
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


def frame(rows: Iterable[Mapping[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    """Rows as a table with exactly these columns."""
    return pl.DataFrame([dict(row) for row in rows], schema=schema)


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


SETS: dict[str, Any] = {
    "method": pl.String,
    "score": pl.String,
    "quantile": pl.String,
    "alpha": pl.Float64,
    "seed": pl.Int64,
    "node": pl.String,
    "client": pl.String,
    "label": pl.String,
    "set": pl.List(pl.String),
    "size": pl.Int64,
    "covered": pl.Boolean,
}

SCORES: dict[str, Any] = {
    "method": pl.String,
    "score": pl.String,
    "node": pl.String,
    "probs": pl.List(pl.Float32),
    "scores": pl.List(pl.Float32),
}


def scores_frame(
    repetition: Repetition,
    nodes: NDArray[np.int64],
    probs: NDArray[np.floating],
    scores: NDArray[np.float32],
    name: str,
) -> pl.DataFrame:
    """One row a node: its probabilities and scores, in the order of the label names."""
    ids = pl.Series(np.asarray(repetition.graph.node_ids)[nodes]).cast(pl.String)
    rows = {"probs": probs[nodes].astype(np.float32), "scores": scores[nodes]}
    lists = {key: pl.Series(key, values).arr.to_list() for key, values in rows.items()}
    return pl.DataFrame({"node": ids, **lists}).select(pl.lit(name).alias("score"), pl.all())


def sets_frame(
    repetition: Repetition,
    nodes: NDArray[np.int64],
    sets: NDArray[np.bool_],
    key: Mapping[str, Any],
) -> pl.DataFrame:
    """One row a test node: its set as label names, and whether the true label is in it."""
    graph, partition = repetition.graph, repetition.partition
    names = np.array(graph.label_names, dtype=object)
    y = graph.y.numpy()[nodes]
    ids = np.asarray(graph.node_ids)[nodes]
    return pl.DataFrame(
        {
            "node": pl.Series(ids).cast(pl.String),
            "client": np.array(partition.names, dtype=object)[partition.client[nodes]].tolist(),
            "label": names[y].tolist(),
            "set": spelt_sets(sets, graph.label_names),
            "size": sets.sum(axis=1),
            "covered": sets[np.arange(len(nodes)), y],
        }
    ).select(
        *(pl.lit(value).alias(name) for name, value in key.items()),
        pl.lit(repetition.seed, pl.Int64).alias("seed"),
        pl.all(),
    )
