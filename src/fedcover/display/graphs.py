"""Named graphs, what a partition cuts, and what ``fedcover inspect`` found."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.text import Text

from fedcover.display.terminal import table
from fedcover.errors import listed
from fedcover.graphs.catalogue import GraphStats
from fedcover.graphs.inspection import Inspection
from fedcover.graphs.statistics import DatasetRow, GraphRow, MissingEdgesRow

COUNTS = ("nodes", "edges", "features", "labels")
MOST_ROWS = 30  # clients in the table; --json has them all
MOST_LABELS = 10  # in a table of their own; likewise
MOST_FAR = 10  # clients in the table of links between them; likewise


def datasets(console: Console, rows: Sequence[DatasetRow]) -> None:
    """The named graphs, ours beside the published statistics."""
    lines = []
    for row in rows:
        counts = [f"{_count(row.ours, name)} | {_count(row.published, name)}" for name in COUNTS]
        lines.append([row.name, row.place, *counts])
    title, headings = "largest connected component | as published", ("name", "where", *COUNTS)
    console.print(table(headings, lines, title=title, words=(0, 1), box=box.HEAVY_HEAD))
    _notes(console, {row.name: row.note for row in rows})


def graph(console: Console, rows: Sequence[GraphRow]) -> None:
    """One graph: whole, largest component, as published."""
    lines = [[row.what, *(_count(row.stats, name) for name in COUNTS)] for row in rows]
    console.print(table(("", *COUNTS), lines, box=box.HEAVY_HEAD))
    _notes(console, {row.what: row.note for row in rows})


def cuts(console: Console, rows: Sequence[MissingEdgesRow]) -> None:
    """The paper's table of missing edges beside ours."""
    lines = []
    for row in rows:
        ours, paper = row.ours, row.published
        missing = f"{ours.missing:,.0f} ({row.lowest:,}-{row.highest:,})"
        shares = (f"{ours.percent:.2f}", f"{paper.missing:,.0f}", f"{paper.percent:.2f}")
        lines.append([row.name, ours.edges, row.clients, missing, *shares])
    title = "missing edges: mean (lowest-highest) over seeds"
    headings = ("graph", "edges", "K", "missing", "%", "paper", "paper %")
    console.print(table(headings, lines, title=title, box=box.HEAVY_HEAD))


def inspection(console: Console, found: Inspection) -> None:
    """Three parts: the graph, its clients, what it means."""
    _whole(console, found)
    few, count = found.clients, len(found.clients)
    title = f"{count:,} client{'' if count == 1 else 's'}, partition {found.partition}"
    if count > MOST_ROWS:
        few = tuple(sorted(few, key=lambda client: client.nodes)[:MOST_ROWS])
        title += f"; the {MOST_ROWS} smallest"
    silent = ("unlabelled",) if found.graph.unlabelled else ()
    known = (f"{found.least}+ far ends",) if any(one.linked is not None for one in few) else ()
    headings = ("client", "nodes", "labelled", *silent, "calibration", "edges", "cut", "cut share")
    headings = (*headings, *known)
    lines = []
    for one in few:
        calibration = "–" if one.calibration is None else one.calibration
        without = (one.unlabelled,) if silent else ()
        counts = (one.nodes, one.labelled, *without, calibration, one.edges, one.cut_edges)
        decimals = (_decimal(one.label_distance), _decimal(one.homophily))
        far = (one.linked or 0,) if known else ()
        lines.append([one.name, *counts, f"{one.cut_share:.1%}", *far, *decimals])
    console.print(table((*headings, "label distance", "homophily"), lines, title=title))
    if known and count <= MOST_FAR:
        names = [one.name for one in few]
        to = [[one.name, *((one.links or {}).get(name, 0) for name in names)] for one in few]
        console.print(table(("client", *names), to, title="links to other clients"))
    labels = list(found.graph.labels)
    if len(labels) <= MOST_LABELS:
        by_label = [[one.name, *(one.labels[label] for label in labels)] for one in few]
        console.print(table(("client", *labels), by_label, title="nodes by label"))
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
    whole = table(("", ""), facts.items(), title=graph.name, words=(0, 1), show_header=False)
    whole.columns[0].style, whole.columns[0].no_wrap = "bold", True
    whole.columns[1].overflow = "fold"
    console.print(whole)


def _count(stats: GraphStats | None, name: str) -> str:
    return "-" if stats is None else f"{getattr(stats, name):,}"


def _notes(console: Console, notes: Mapping[str, str]) -> None:
    for name, note in notes.items():
        if note:
            console.print(Text(f"{name}: {note}"))


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
