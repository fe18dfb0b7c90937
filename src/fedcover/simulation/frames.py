"""The rows of one repetition, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover.graphs.labels import spelt_sets
from fedcover.simulation.repetition import Repetition


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
