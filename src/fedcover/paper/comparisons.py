"""Graphs, accuracy and bytes beside the paper's numbers."""

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import ArrayLike
from scipy.stats import t as student

from fedcover.config import Config
from fedcover.graphs.catalogue import DATASETS
from fedcover.graphs.statistics import list_rows, missing_edges_rows
from fedcover.models.gnn import operators
from fedcover.paper import published
from fedcover.paper.definition import Definition
from fedcover.paper.grid import seeds_of_target
from fedcover.paper.tables import Table, signed

COUNTS = ("nodes", "edges", "features", "labels")
LARGE = ("weights", "weights, choice of M and p", "VGAE weights", "prototypes")
REST = "all else"
FLOAT = 4  # bytes of a number in the paper's formulas


def statistics_table(definition: Definition, data: str | Path | None) -> Table:
    """Nodes, edges, features and labels of each graph, and as published."""
    body, tidy = [], []
    for row in list_rows(data):
        if row.name in definition.graphs:
            line = [row.title]
            for name in COUNTS:
                pair = [getattr(source, name, None) for source in (row.ours, row.published)]
                line += ["–" if number is None else f"{number:,}" for number in pair]
                tidy.append((row.name, name, *pair))
            body.append(line)
    headings = ["graph", *(heading for name in COUNTS for heading in (name, "paper"))]
    graphs = [DATASETS[name] for name in definition.graphs]
    notes = ["Ours: the largest connected component; edges are directed."]
    notes += [f"{graph.title}: {graph.slip}." for graph in graphs if graph.slip]
    columns = {"dataset": pl.String, "what": pl.String, "ours": pl.Int64, "published": pl.Int64}
    whole = pl.DataFrame(tidy, schema=columns, orient="row")
    return Table(definition.title, headings, body, whole, notes)


def cuts_table(definition: Definition, data: str | Path | None) -> Table:
    """How many directed edges METIS cuts, and how many are missing in the paper."""
    body, tidy = [], []
    for row in missing_edges_rows(data, range(definition.seeds), definition.graphs):
        if row.clients in definition.clients:
            ours, paper = row.ours, row.published
            spread = f"{ours.missing:,.0f} ({row.lowest:,}–{row.highest:,})"
            numbers = [f"{ours.edges:,}", spread, f"{ours.percent:.2f}"]
            numbers += [f"{paper.missing:,.0f}", f"{paper.percent:.2f}"]
            body.append([DATASETS[row.name].title, str(row.clients), *numbers])
            counts = (ours.edges, ours.missing, row.lowest, row.highest, paper.missing)
            tidy.append((row.name, row.clients, *counts))
    headings = ["graph", "K", "edges", "missing", "%", "paper", "paper, %"]
    columns = ["dataset", "clients", "edges", "missing", "lowest", "highest", "published"]
    notes = [f"METIS; mean (lowest–highest) of {definition.seeds} seeds; directed edges."]
    whole = pl.DataFrame(tidy, schema=columns, orient="row")
    return Table(definition.title, headings, body, whole, notes)


def change_table(definition: Definition, preset: str, rows: pl.DataFrame) -> Table:
    """Change in accuracy against a baseline in per cent, paired over seeds, and the paper's."""
    methods = definition.presets[preset].methods
    baseline = definition.baseline or methods[0]
    others = [method for method in methods if method != baseline]
    headings = ["graph", "K", f"{baseline}, accuracy"]
    headings += [name for method in others for name in (method, "change in %", "paper")]
    own = seeds_of_target(definition, preset, rows).sort("seed", maintain_order=True)
    body, tidy = [], []
    for graph, clients in product(definition.graphs, definition.clients):
        here = own.filter(dataset=graph, clients=clients)
        base = here.filter(method=baseline)["accuracy"].to_numpy()
        line = [DATASETS[graph].title, str(clients), f"{base.mean():.3f}"]
        for method in others:
            accuracy = here.filter(method=method)["accuracy"].to_numpy()
            mean, half = paired(100 * (accuracy / base - 1))
            paper = published.accuracy_changes().get((graph, clients, method))
            change = f"{signed(mean)} ± {half:.2f}"
            line += [f"{accuracy.mean():.3f}", change, "–" if paper is None else signed(paper)]
            tidy.append((graph, clients, method, accuracy.mean(), base.mean(), mean, half, paper))
        body.append(line)
    columns = ["dataset", "clients", "method", "accuracy", "baseline", "change_percent"]
    columns += ["half_width", "published"]
    data = pl.DataFrame(tidy, schema=columns, orient="row")
    note = (
        f"Change of the accuracy relative to {baseline}, paired over {definition.seeds} seeds, "
        "± half of its 95 % interval."
    )
    rounded = data.with_columns(pl.selectors.float().round(5))
    return Table(f"{definition.title} ({preset})", headings, body, rounded, [note])


def paired(differences: ArrayLike) -> tuple[float, float]:
    """Mean of paired differences over the seeds, and half of its 95 % interval."""
    found = np.asarray(differences, dtype=np.float64)
    n, mean = len(found), float(found.mean())
    if n < 2:
        return mean, float("nan")
    return mean, float(found.std(ddof=1) / n**0.5 * student.ppf(0.975, n - 1))


def bytes_table(definition: Definition, preset: str, rows: pl.DataFrame) -> Table:
    """What was sent by kind, beside 2·K·M·d and 2·K·|Θ|·R (section "Complexity Analysis")."""
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
        chosen = int(row["prototypes"])  # 0, the cell "none": no formula has it
        return 2.0 * int(row["clients"]) * chosen * features * FLOAT if chosen else None
    else:
        return None
    return 2.0 * int(row["clients"]) * numbers * int(row["rounds"]) * FLOAT


def _parameters(model: str, features: int, hidden: int, classes: int) -> int:
    """|Θ| of two layers; GraphSAGE has weights for a node and for its neighbours."""
    return operators(model) * (features * hidden + hidden * classes) + hidden + classes
