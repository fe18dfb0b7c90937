"""Named graphs, what a partition cuts, and what ``fedcover inspect`` found."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedcover.display.terminal import table
from fedcover.errors import listed
from fedcover.graphs.catalogue import GraphStats
from fedcover.graphs.inspection import Inspection
from fedcover.graphs.statistics import DatasetRow, GraphRow, MissingEdgesRow

COUNTS = ("nodes", "edges", "features", "labels")
MOST_ROWS = 30  # clients in the table; --json has them all
MOST_LABELS = 10  # in a table of their own; likewise


def datasets(console: Console, rows: Sequence[DatasetRow]) -> None:
    """The named graphs, ours beside the published statistics."""
    lines = [
        [row.name, row.place, *map(" | ".join, zip(*map(_numbers, both), strict=True))]
        for row in rows
        for both in [(row.ours, row.published)]
    ]
    title, headings = "largest connected component | as published", ("name", "where", *COUNTS)
    console.print(table(headings, lines, title=title, words=(0, 1), box=box.HEAVY_HEAD))
    _notes(console, [(row.name, row.note) for row in rows])


def graph(console: Console, rows: Sequence[GraphRow]) -> None:
    """One graph: whole, largest component, as published."""
    lines = [[row.what, *_numbers(row.stats)] for row in rows]
    console.print(table(("", *COUNTS), lines, box=box.HEAVY_HEAD))
    _notes(console, [(row.what, row.note) for row in rows])


def cuts(console: Console, rows: Sequence[MissingEdgesRow]) -> None:
    """The paper's table of missing edges beside ours."""
    lines = [
        [
            row.name,
            f"{row.ours.edges:,}",
            row.clients,
            f"{row.ours.missing:,.0f} ({row.lowest:,}-{row.highest:,})",
            f"{row.ours.percent:.2f}",
            f"{row.published.missing:,.0f}",
            f"{row.published.percent:.2f}",
        ]
        for row in rows
    ]
    title = "missing edges: mean (lowest-highest) over seeds"
    headings = ("graph", "edges", "K", "missing", "%", "paper", "paper %")
    console.print(table(headings, lines, title=title, box=box.HEAVY_HEAD))


def inspection(console: Console, found: Inspection) -> None:
    """Three parts: the graph, its clients, what it means."""
    _whole(console, found)
    few, of = found.clients, f"{len(found.clients):,} client"
    of += f"{'s' * (len(few) != 1)}, partition {found.partition}"
    if len(few) > MOST_ROWS:
        few = tuple(sorted(few, key=lambda client: client.nodes)[:MOST_ROWS])
        of += f"; the {MOST_ROWS} smallest"
    headings = ("client", "nodes", "labelled", "calibration", "edges", "cut", "cut share")
    lines = [
        [
            client.name,
            f"{client.nodes:,}",
            f"{client.labelled:,}",
            "–" if client.calibration is None else f"{client.calibration:,}",
            f"{client.edges:,}",
            f"{client.cut_edges:,}",
            f"{client.cut_share:.1%}",
            _decimal(client.label_distance),
            _decimal(client.homophily),
        ]
        for client in few
    ]
    console.print(table((*headings, "label distance", "homophily"), lines, title=of))
    labels = list(found.graph.labels)
    if len(labels) <= MOST_LABELS:
        lines = [[c.name, *(f"{c.labels[label]:,}" for label in labels)] for c in few]
        console.print(table(("client", *labels), lines, title="nodes by label"))
    for sentence in found.sentences():
        console.print(Text(sentence), soft_wrap=True)


def _whole(console: Console, found: Inspection) -> None:
    graph, features = found.graph, found.graph.features
    counts = listed([f"{name} {count:,}" for name, count in graph.labels.items()])
    alike = "" if graph.homophily is None else " of the edges join equal labels"
    kept = "sparse" if features.sparse else "dense"
    facts = {
        "nodes": f"{graph.nodes:,}, of which {graph.isolated:,} without an edge",
        "edges": f"{graph.edges:,}, each counted once",
        "components": f"{graph.components:,}, the largest with {graph.largest_component:,} nodes",
        "features": f"{features.columns:,}: {features.numeric:,} numeric, {features.binary:,} of 0 "
        f"and 1; {kept}, {features.filled:.1%} not zero",
        "labels": f"{len(graph.labels):,}: {counts}",
        "unlabelled": f"{graph.unlabelled:,} nodes",
        "homophily": f"{_decimal(graph.homophily)}{alike}",
    }
    whole = Table(box=box.SIMPLE_HEAD, show_header=False, title=Text(graph.name))
    whole.title_justify = "left"
    whole.add_column(style="bold", no_wrap=True)
    whole.add_column(overflow="fold")
    for name, value in facts.items():
        whole.add_row(name, Text(value))
    console.print(whole)


def _numbers(stats: GraphStats | None) -> list[str]:
    return ["-" if stats is None else f"{getattr(stats, name):,}" for name in COUNTS]


def _notes(console: Console, notes: Sequence[tuple[str, str]]) -> None:
    for name, note in notes:
        if note:
            console.print(Text(f"{name}: {note}"))


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
