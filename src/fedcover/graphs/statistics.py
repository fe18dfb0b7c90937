"""The paper's two tables about graphs, ours beside the published ones, as plain rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch_geometric.data import Data

from fedcover.errors import UsageError
from fedcover.graphs.assemble import largest_component
from fedcover.graphs.catalogue import DATASETS, MISSING_EDGES, GraphStats
from fedcover.graphs.datasets import load, locate
from fedcover.graphs.partition import partition


@dataclass(frozen=True)
class DatasetRow:
    """A named graph: its largest component here (None if not at hand) and in the paper."""

    name: str
    title: str
    place: str
    ours: GraphStats | None
    published: GraphStats | None
    note: str


@dataclass(frozen=True)
class GraphRow:
    """One reading of a graph: as a whole, its largest component, or as published."""

    what: str
    stats: GraphStats
    note: str = ""


@dataclass(frozen=True)
class MissingEdges:
    """Directed edges of a graph and how many of them a partition cuts (paper, table 1)."""

    edges: int
    missing: float
    percent: float


@dataclass(frozen=True)
class MissingEdgesRow:
    """Table 1 for one graph and number of clients: our mean and range over seeds, the paper's."""

    name: str
    clients: int
    ours: MissingEdges
    lowest: int
    highest: int
    published: MissingEdges


def describe(graph: Data) -> GraphStats:
    """Nodes, directed edges, features and labels (classes) of a graph."""
    nodes, features = graph.x.shape
    return GraphStats(nodes, int(graph.num_edges), features, len(graph.label_names))


def list_rows(data: str | Path | None = None) -> list[DatasetRow]:
    """All named graphs, for ``fedcover data list``; nothing is downloaded for it."""
    rows = []
    for dataset in DATASETS.values():
        raw = locate(dataset.name, data)
        ours = None if raw is None else describe(load(dataset.name, data))
        place = "to fetch" if raw is None else "embedded" if raw.is_file() else str(raw)
        known = (dataset.name, dataset.title, place)
        rows.append(DatasetRow(*known, ours, dataset.published, dataset.slip))
    return rows


def show_rows(name_or_path: str | Path, data: str | Path | None = None) -> list[GraphRow]:
    """One graph, for ``fedcover data show``: whole, largest component and, if any, published."""
    graph = load(name_or_path, data, largest_component=False)
    rows = [
        GraphRow("whole graph", describe(graph)),
        GraphRow("largest component", describe(largest_component(graph))),
    ]
    dataset = DATASETS.get(str(name_or_path).lower())
    if dataset is not None and dataset.published is not None:
        rows.append(GraphRow("paper", dataset.published, dataset.slip))
    return rows


def missing_edges(graph: Data, clients: int, seed: int = 0, method: str = "metis") -> MissingEdges:
    """How many directed edges one partition cuts, and how many per cent of all that is."""
    return _share(int(graph.num_edges), partition(graph, clients, method, seed).cut_edges.shape[1])


def missing_edges_rows(
    data: str | Path | None = None,
    seeds: Sequence[int] = range(5),
    names: Sequence[str] | None = None,
) -> list[MissingEdgesRow]:
    """The paper's table 1 (Cora and CiteSeer at K = 5, 10, 20) beside METIS here."""
    known = list(dict.fromkeys(name for name, _ in MISSING_EDGES))
    for name in names or ():
        if name not in known:
            raise UsageError(f"{name!r} is not in the paper's table; it has {', '.join(known)}.")
    graphs = {name: load(name, data) for name in names or known}
    rows = []
    for (name, clients), published in MISSING_EDGES.items():
        if name in graphs:
            edges = int(graphs[name].num_edges)
            cuts = [int(missing_edges(graphs[name], clients, seed).missing) for seed in seeds]
            ours, paper = _share(edges, float(np.mean(cuts))), _share(edges, published)
            rows.append(MissingEdgesRow(name, clients, ours, min(cuts), max(cuts), paper))
    return rows


def _share(edges: int, missing: float) -> MissingEdges:
    return MissingEdges(edges, missing, 100 * missing / edges if edges else 0.0)
