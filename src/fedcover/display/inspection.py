"""What ``fedcover inspect`` found: the graph, its clients, and what that means."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedcover.errors import listed
from fedcover.graphs.facts import ClientFacts
from fedcover.graphs.inspection import Inspection

MOST_ROWS = 30  # clients in the table; --json has them all
MOST_LABELS = 10  # in a table of their own; likewise


def inspection(console: Console, found: Inspection) -> None:
    """Three parts: the graph, its clients, what it means."""
    graph, features = found.graph, found.graph.features
    counts = listed([f"{name} {count:,}" for name, count in graph.labels.items()])
    alike = "" if graph.homophily is None else " of the edges join equal labels"
    kept = "sparse" if features.sparse else "dense"
    whole = Table(box=box.SIMPLE_HEAD, show_header=False, title=Text(graph.name))
    whole.title_justify = "left"
    whole.add_column(style="bold", no_wrap=True)
    whole.add_column(overflow="fold")
    for name, value in (
        ("nodes", f"{graph.nodes:,}, of which {graph.isolated:,} without an edge"),
        ("edges", f"{graph.edges:,}, each counted once"),
        ("components", f"{graph.components:,}, the largest with {graph.largest_component:,} nodes"),
        (
            "features",
            f"{features.columns:,}: {features.numeric:,} numeric, {features.binary:,} of 0 and 1; "
            f"{kept}, {features.filled:.1%} not zero",
        ),
        ("labels", f"{len(graph.labels):,}: {counts}"),
        ("unlabelled", f"{graph.unlabelled:,} nodes"),
        ("homophily", f"{_decimal(graph.homophily)}{alike}"),
    ):
        whole.add_row(name, Text(value))
    console.print(whole)

    many = "client" if len(found.clients) == 1 else "clients"
    of = f"{len(found.clients):,} {many}, partition {found.partition}"
    few = found.clients[:]
    if len(few) > MOST_ROWS:
        few = tuple(sorted(few, key=lambda client: client.nodes)[:MOST_ROWS])
        of += f"; the {MOST_ROWS} smallest"
    table = Table(box=box.SIMPLE_HEAD, title=Text(of), title_justify="left")
    for heading in (
        "client",
        "nodes",
        "labelled",
        "calibration",
        "edges",
        "cut",
        "cut share",
        "label distance",
        "homophily",
    ):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    for client in few:
        table.add_row(
            Text(client.name),
            f"{client.nodes:,}",
            f"{client.labelled:,}",
            "–" if client.calibration is None else f"{client.calibration:,}",
            f"{client.edges:,}",
            f"{client.cut_edges:,}",
            f"{client.cut_share:.1%}",
            _decimal(client.label_distance),
            _decimal(client.homophily),
        )
    console.print(table)
    if len(graph.labels) <= MOST_LABELS:
        console.print(_labels(few, list(graph.labels)))
    for sentence in found.sentences():
        console.print(Text(sentence), soft_wrap=True)


def _labels(clients: Sequence[ClientFacts], names: Sequence[str]) -> Table:
    """The clients' nodes by label."""
    table = Table(box=box.SIMPLE_HEAD, title=Text("nodes by label"), title_justify="left")
    table.add_column("client")
    for name in names:
        table.add_column(Text(name), justify="right")
    for client in clients:
        table.add_row(Text(client.name), *(f"{client.labels[name]:,}" for name in names))
    return table


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
