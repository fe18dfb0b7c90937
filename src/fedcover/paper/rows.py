"""A cell's rows: one for each score, rule, level and seed. Computed here, kept by the store."""

import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from torch_geometric.data import Data

from fedcover.graphs import load
from fedcover.paper.version import code_version
from fedcover.simulation.run import run
from fedcover.tables import KEY, RESULTS

if TYPE_CHECKING:
    from fedcover.paper.grid import Cell

_METRICS = dict.fromkeys(("n_test", "coverage", "set_size"), pl.Float32)
GROUP = pl.Struct({"kind": pl.String, "group": pl.String, **_METRICS})
SENT = pl.Struct({"kind": pl.String, "direction": pl.String, "bytes": pl.Int64, "rounds": pl.Int64})
ROWS = pl.Schema(
    {
        "preset": pl.String,
        "variant": pl.String,
        **RESULTS,
        "coverage_sd": pl.Float64,
        "resplits": pl.Int64,
        "prototypes": pl.Int64,  # Gen's M
        "groups": pl.List(GROUP),
        "sent": pl.List(SENT),
        "cell_seconds": pl.Float64,
        "cell_cpu_seconds": pl.Float64,
        "cell": pl.String,
        "code": pl.String,
    }
)
"""Columns of the store. ``groups``: by client, class, position and set size, as in groups.csv;
``sent``: bytes by kind and direction over all clients and rounds; ``cell`` is the key;
``cell_seconds`` are for all rows of a cell together."""

IDENTITY = (
    "dataset", "clients", "method", "variant", "model", "score", "quantile", "alpha", "seed"
)  # fmt: skip
"""What no two rows of one preset share."""
KINDS = ("client", "class", "position", "size")


@lru_cache(maxsize=4)
def graph_of(name: str, data: str | Path | None) -> Data:
    """A named graph, read once by each process."""
    return load(name, data)


def compute(cell: "Cell", data: str | Path | None = None) -> pl.DataFrame:
    """The rows of one cell, computed here and now."""
    graph = graph_of(cell.graph, data)
    began, began_cpu = time.perf_counter(), time.process_time()
    finished = run(graph, cell.config)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    groups = finished.groups.lazy()
    spread = groups.filter(pl.col("kind") == "all").select(*KEY, "coverage_sd")
    parts = (
        groups.filter(pl.col("kind").is_in(KINDS))
        .group_by(KEY, maintain_order=True)
        .agg(pl.struct("kind", "group", "n_test", "coverage", "set_size").alias("groups"))
    )
    sent = (
        finished.ledger.lazy()
        .with_columns(pl.col("bytes") * pl.col("rounds"))
        .group_by("seed", "kind", "direction", maintain_order=True)
        .agg(pl.col("bytes").sum(), pl.col("rounds").max())
        .group_by("seed", maintain_order=True)
        .agg(pl.struct("kind", "direction", "bytes", "rounds").alias("sent"))
    )
    chosen = finished.info["chosen_on_validation"].get(cell.method, {})
    by_seed = chosen.get("prototypes", [None] * cell.config.seeds)
    prototypes = pl.LazyFrame(
        {"seed": cell.config.seed_range, "prototypes": by_seed},
        schema={"seed": pl.Int64, "prototypes": pl.Int64},
    )
    return (
        finished.results.lazy()
        .join(spread, on=KEY, how="left", maintain_order="left")
        .join(parts, on=KEY, how="left", maintain_order="left")
        .join(sent, on="seed", how="left", maintain_order="left")
        .join(prototypes, on="seed", how="left", maintain_order="left")
        .with_columns(
            pl.lit(cell.preset).alias("preset"),
            pl.lit(cell.variant).alias("variant"),
            pl.lit(cell.config.resplits, pl.Int64).alias("resplits"),
            pl.lit(round(seconds, 3)).alias("cell_seconds"),
            pl.lit(round(cpu_seconds, 3)).alias("cell_cpu_seconds"),
            pl.lit(cell.key).alias("cell"),
            pl.lit(code_version()).alias("code"),
        )
        .select(ROWS.names())
        .cast(ROWS)
        .collect()
    )
