"""What was sent, beside the paper's formulas (section "Complexity Analysis")."""

from __future__ import annotations

import polars as pl

from fedcover.config import Config
from fedcover.graphs.catalogue import DATASETS
from fedcover.paper.definition import Definition
from fedcover.paper.tables import Table
from fedcover.paper.views.select import seeds_of_target

LARGE = ("weights", "weights, choice of M and p", "VGAE weights", "prototypes")
REST = "all else"
FLOAT = 4  # bytes of a number in the paper's formulas


def bytes_table(definition: Definition, preset: str, rows: pl.DataFrame) -> Table:
    """What was sent by kind, beside the paper's 2·K·M·d and 2·K·|Θ|·R."""
    own = seeds_of_target(definition, preset, rows)
    named = pl.when(pl.col("kind").is_in(LARGE)).then("kind").otherwise(pl.lit(REST))
    kinds = (
        own.select("dataset", "clients", "method", "seed", "prototypes", "sent")
        .explode("sent")
        .unnest("sent")
        .with_columns(named.alias("kind"))
        .group_by("dataset", "clients", "method", "kind", "seed", maintain_order=True)
        .agg(pl.col("bytes").sum(), pl.col("rounds").max(), pl.col("prototypes").first())
    )
    body, tidy = [], []
    groups = kinds.group_by("dataset", "clients", "method", "kind", maintain_order=True)
    for (graph, clients, method, kind), block in groups:
        sent = float(block["bytes"].to_numpy().mean())
        formulas = [
            _formula(definition, preset, str(graph), int(str(clients)), str(kind), row)
            for row in block.iter_rows(named=True)
        ]
        known = [f for f in formulas if f is not None]
        formula = sum(known) / len(known) if len(known) == len(formulas) else None
        body.append(
            [
                DATASETS[str(graph)].title,
                str(clients),
                str(method),
                str(kind),
                f"{sent:,.0f}",
                "–" if formula is None else f"{formula:,.0f}",
                "–" if formula is None else f"{sent / formula:.2f}",
            ]
        )
        tidy.append(
            {
                "dataset": graph,
                "clients": clients,
                "method": method,
                "kind": kind,
                "bytes": sent,
                "formula": formula,
            }
        )
    headings = ["graph", "K", "method", "kind", "bytes", "formula", "ratio"]
    notes = [
        "Bytes up and down of all clients and rounds, mean over seeds. Formula: 2·K·|Θ|·R for "
        "weights, with the rounds R that were trained; 2·K·M·d for prototypes, with the M that was "
        "chosen. Prototypes: every M of the grid is sent, and each client receives the others'.",
        f"{REST.capitalize()}: counts, losses, temperatures, thresholds, and the quantiles of all "
        "scores, rules and levels that any table or figure judges these models by.",
    ]
    data = pl.DataFrame(tidy, schema_overrides={"formula": pl.Float64})
    return Table(f"{definition.title} ({preset})", headings, body, data, notes, words=4)


def _formula(
    definition: Definition,
    preset: str,
    graph: str,
    clients: int,
    kind: str,
    row: dict[str, int],
) -> float | None:
    """The paper's bytes for this kind of message (section "Complexity Analysis")."""
    config = Config.preset(preset, **definition.settings)
    features, classes = _shape(graph)
    gen = config.gen
    if kind == "weights":
        parameters = _parameters(config.model, features, config.hidden, classes)
    elif kind == "VGAE weights":
        parameters = _parameters("gcn", features, gen.link_hidden, 2 * gen.link_latent)
    elif kind == "prototypes":
        return float(2 * clients * row["prototypes"] * features * FLOAT)
    else:
        return None
    return float(2 * clients * parameters * row["rounds"] * FLOAT)


def _shape(graph: str) -> tuple[int, int]:
    """Features and labels of a named graph; Cora's published number of features is a slip."""
    stats = DATASETS[graph].published
    assert stats is not None
    return (1433 if graph == "cora" else stats.features), stats.labels


def _parameters(model: str, features: int, hidden: int, classes: int) -> int:
    """|Θ| of two layers; GraphSAGE has weights for a node and for its neighbours."""
    operators = 2 if model == "sage" else 1
    return operators * (features * hidden + hidden * classes) + hidden + classes
