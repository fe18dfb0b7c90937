"""Named graphs and what a partition cuts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedcover.graphs.catalogue import GraphStats
from fedcover.graphs.statistics import DatasetRow, GraphRow, MissingEdgesRow


def datasets(console: Console, rows: Sequence[DatasetRow]) -> None:
    """The named graphs, ours beside the published statistics."""
    table = Table(title="largest connected component | as published", title_justify="left")
    for heading in ("name", "where", "nodes", "edges", "features", "labels"):
        table.add_column(heading, justify="left" if heading in ("name", "where") else "right")
    for row in rows:
        pairs = zip(_numbers(row.ours), _numbers(row.published), strict=True)
        table.add_row(
            Text(row.name), Text(row.place), *(f"{ours} | {paper}" for ours, paper in pairs)
        )
    console.print(table)
    _notes(console, [(row.name, row.note) for row in rows])


def graph(console: Console, rows: Sequence[GraphRow]) -> None:
    """One graph: whole, largest component, as published."""
    table = Table()
    for heading in ("", "nodes", "edges", "features", "labels"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(Text(row.what), *_numbers(row.stats))
    console.print(table)
    _notes(console, [(row.what, row.note) for row in rows])


def cuts(console: Console, rows: Sequence[MissingEdgesRow]) -> None:
    """The paper's table of missing edges beside ours."""
    table = Table(title="missing edges: mean (lowest-highest) over seeds", title_justify="left")
    for heading in ("graph", "edges", "K", "missing", "%", "paper", "paper %"):
        table.add_column(heading, justify="left" if heading == "graph" else "right")
    for row in rows:
        ours, paper = row.ours, row.published
        table.add_row(
            Text(row.name),
            f"{ours.edges:,}",
            str(row.clients),
            f"{ours.missing:,.0f} ({row.lowest:,}-{row.highest:,})",
            f"{ours.percent:.2f}",
            f"{paper.missing:,.0f}",
            f"{paper.percent:.2f}",
        )
    console.print(table)


def _numbers(stats: GraphStats | None) -> list[str]:
    if stats is None:
        return ["-"] * 4
    values = (stats.nodes, stats.edges, stats.features, stats.labels)
    return [f"{value:,}" for value in values]


def _notes(console: Console, notes: Sequence[tuple[str, str]]) -> None:
    for name, note in notes:
        if note:
            console.print(Text(f"{name}: {note}"))
