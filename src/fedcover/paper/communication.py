"""What was sent, beside the paper's formulas (section "Complexity Analysis")."""

from __future__ import annotations

import polars as pl

from fedcover.config import Config
from fedcover.graphs.catalogue import DATASETS
from fedcover.models.gnn import operators
from fedcover.paper.definition import Definition
from fedcover.paper.grid import seeds_of_target
from fedcover.paper.tables import Table

LARGE = ("weights", "weights, choice of M and p", "VGAE weights", "prototypes")
REST = "all else"
FLOAT = 4  # bytes of a number in the paper's formulas


def bytes_table(definition: Definition, preset: str, rows: pl.DataFrame) -> Table:
    """What was sent by kind, beside the paper's 2·K·M·d and 2·K·|Θ|·R."""
    config = Config.preset(preset, **definition.settings)
    key = ["dataset", "clients", "method", "kind"]
    named = pl.when(pl.col("kind").is_in(LARGE)).then("kind").otherwise(pl.lit(REST))
    seeds = (
        seeds_of_target(definition, preset, rows)
        .select("dataset", "clients", "method", "seed", "prototypes", "sent")
        .explode("sent")
        .unnest("sent")
        .with_columns(named.alias("kind"))
        .group_by(*key, "seed", maintain_order=True)
        .agg(pl.col("bytes").sum(), pl.col("rounds").max(), pl.col("prototypes").first())
    )
    formulas = [_formula(config, row) for row in seeds.iter_rows(named=True)]
    data = (
        seeds.with_columns(pl.Series("formula", formulas, dtype=pl.Float64))
        .group_by(key, maintain_order=True)
        .agg(pl.col("bytes", "formula").mean())
    )
    body = []
    for graph, clients, method, kind, sent, formula in data.iter_rows():
        compared = ("–", "–") if formula is None else (f"{formula:,.0f}", f"{sent / formula:.2f}")
        body.append([DATASETS[graph].title, str(clients), method, kind, f"{sent:,.0f}", *compared])
    headings = ["graph", "K", "method", "kind", "bytes", "formula", "ratio"]
    notes = [
        "Bytes up and down of all clients and rounds, mean over seeds. Formula: 2·K·|Θ|·R for "
        "weights, with the rounds R that were trained; 2·K·M·d for prototypes, with the M that was "
        "chosen. Prototypes: every M of the grid is sent, and each client receives the others'.",
        f"{REST.capitalize()}: counts, losses, temperatures, thresholds, and the quantiles of all "
        "scores, rules and levels that any table or figure judges these models by.",
    ]
    return Table(f"{definition.title} ({preset})", headings, body, data, notes, words=4)


def _formula(config: Config, row: dict[str, int | str]) -> float | None:
    """The paper's bytes for this kind of message."""
    stats, gen = DATASETS[str(row["dataset"])].published, config.gen
    assert stats is not None
    # Cora's published number of features is a slip.
    features = 1433 if row["dataset"] == "cora" else stats.features
    if row["kind"] == "weights":
        numbers = _parameters(config.model, features, config.hidden, stats.labels)
    elif row["kind"] == "VGAE weights":
        numbers = _parameters("gcn", features, gen.link_hidden, 2 * gen.link_latent)
    elif row["kind"] == "prototypes":
        return 2.0 * int(row["clients"]) * int(row["prototypes"]) * features * FLOAT
    else:
        return None
    return 2.0 * int(row["clients"]) * numbers * int(row["rounds"]) * FLOAT


def _parameters(model: str, features: int, hidden: int, classes: int) -> int:
    """|Θ| of two layers; GraphSAGE has weights for a node and for its neighbours."""
    return operators(model) * (features * hidden + hidden * classes) + hidden + classes
