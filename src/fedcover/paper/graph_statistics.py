"""The tables about graphs alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fedcover.graphs.catalogue import DATASETS
from fedcover.graphs.statistics import list_rows, missing_edges_rows
from fedcover.paper.definition import Definition
from fedcover.paper.tables import Table

COUNTS = ("nodes", "edges", "features", "labels")


def statistics_table(definition: Definition, data: str | Path | None) -> Table:
    """Nodes, edges, features and labels of each graph, and as published."""
    body, tidy = [], []
    for row in list_rows(data):
        if row.name not in definition.graphs:
            continue
        line = [row.title]
        for name in COUNTS:
            ours, paper = getattr(row.ours, name, None), getattr(row.published, name, None)
            line += ["–" if number is None else f"{number:,}" for number in (ours, paper)]
            tidy.append({"dataset": row.name, "what": name, "ours": ours, "published": paper})
        body.append(line)
    headings = ["graph", *(heading for name in COUNTS for heading in (name, "paper"))]
    slips = [(DATASETS[g].title, DATASETS[g].slip) for g in definition.graphs]
    notes = ["Ours: the largest connected component; edges are directed."]
    notes += [f"{title}: {slip}." for title, slip in slips if slip]
    whole = pl.DataFrame(tidy, schema_overrides={"ours": pl.Int64, "published": pl.Int64})
    return Table(definition.title, headings, body, whole, notes)


def cuts_table(definition: Definition, data: str | Path | None) -> Table:
    """How many directed edges METIS cuts, and how many are missing in the paper."""
    body, tidy = [], []
    for row in missing_edges_rows(data, range(definition.seeds), definition.graphs):
        if row.clients not in definition.clients:
            continue
        ours, paper = row.ours, row.published
        body.append(
            [
                DATASETS[row.name].title,
                str(row.clients),
                f"{ours.edges:,}",
                f"{ours.missing:,.0f} ({row.lowest:,}–{row.highest:,})",
                f"{ours.percent:.2f}",
                f"{paper.missing:,.0f}",
                f"{paper.percent:.2f}",
            ]
        )
        tidy.append(
            {
                "dataset": row.name,
                "clients": row.clients,
                "edges": ours.edges,
                "missing": ours.missing,
                "lowest": row.lowest,
                "highest": row.highest,
                "published": paper.missing,
            }
        )
    headings = ["graph", "K", "edges", "missing", "%", "paper", "paper, %"]
    notes = [f"METIS; mean (lowest–highest) of {definition.seeds} seeds; directed edges."]
    return Table(definition.title, headings, body, pl.DataFrame(tidy), notes)
