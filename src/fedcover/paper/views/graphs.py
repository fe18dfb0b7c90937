"""The tables about graphs alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fedcover.graphs.catalogue import DATASETS
from fedcover.graphs.statistics import list_rows, missing_edges_rows
from fedcover.paper.definition import Definition
from fedcover.paper.tables import Table


def statistics_table(definition: Definition, data: str | Path | None) -> Table:
    """Nodes, edges, features and labels of each graph, and as published."""
    body, tidy = [], []
    for row in list_rows(data):
        if row.name not in definition.graphs:
            continue
        line = [row.title]
        for name in ("nodes", "edges", "features", "labels"):
            ours, paper = getattr(row.ours, name, None), getattr(row.published, name, None)
            line += [_whole(ours), _whole(paper)]
            tidy.append({"dataset": row.name, "what": name, "ours": ours, "published": paper})
        body.append(line)
    headings = ["graph"]
    for name in ("nodes", "edges", "features", "labels"):
        headings += [name, "paper"]
    slips = [(DATASETS[g].title, DATASETS[g].slip) for g in definition.graphs]
    notes = ["Ours: the largest connected component; edges are directed."]
    notes += [f"{title}: {slip}." for title, slip in slips if slip]
    schema = {"ours": pl.Int64, "published": pl.Int64}
    return Table(
        definition.title, headings, body, pl.DataFrame(tidy, schema_overrides=schema), notes
    )


def cuts_table(definition: Definition, data: str | Path | None) -> Table:
    """How many directed edges METIS cuts, and how many are missing in the paper."""
    found = missing_edges_rows(data, range(definition.seeds), definition.graphs)
    own = [row for row in found if row.clients in definition.clients]
    body = [
        [
            DATASETS[row.name].title,
            str(row.clients),
            f"{row.ours.edges:,}",
            f"{row.ours.missing:,.0f} ({row.lowest:,}–{row.highest:,})",
            f"{row.ours.percent:.2f}",
            f"{row.published.missing:,.0f}",
            f"{row.published.percent:.2f}",
        ]
        for row in own
    ]
    data_frame = pl.DataFrame(
        [
            {
                "dataset": row.name,
                "clients": row.clients,
                "edges": row.ours.edges,
                "missing": row.ours.missing,
                "lowest": row.lowest,
                "highest": row.highest,
                "published": row.published.missing,
            }
            for row in own
        ]
    )
    headings = ["graph", "K", "edges", "missing", "%", "paper", "paper, %"]
    notes = [f"METIS; mean (lowest–highest) of {definition.seeds} seeds; directed edges."]
    return Table(definition.title, headings, body, data_frame, notes)


def _whole(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"
