"""What a graph holds, and what each client holds of it, counted before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch_geometric.data import Data

from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.partition import Partition


@dataclass(frozen=True)
class Features:
    """The columns of ``x``: how many hold only 0 and 1, how they are kept, how many are filled."""

    columns: int
    binary: int
    numeric: int
    sparse: bool
    filled: float  # share of values that are not zero


@dataclass(frozen=True)
class GraphFacts:
    """The graph as a whole; an edge has no direction here and counts once."""

    name: str
    nodes: int
    edges: int
    features: Features
    labels: dict[str, int]  # nodes by label
    unlabelled: int
    isolated: int  # nodes without an edge
    components: int
    largest_component: int
    homophily: float | None  # share of edges that join equal labels; None without such edges
    missing: dict[str, int]  # empty values by the table's column, where it has some
    own_clients: int  # that its client column names; 0 without one


@dataclass(frozen=True)
class ClientFacts:
    """One client's part. ``label_distance`` is the total variation between its label frequencies
    and the whole graph's (0: the same, 1: no label in common)."""

    name: str
    nodes: int
    labelled: int
    labels: dict[str, int]  # nodes by label
    calibration: int | None  # None where the nodes could not be split
    edges: int  # between its own nodes
    cut_edges: int  # to nodes of others, which nobody sees
    cut_share: float  # of all edges that its nodes have
    label_distance: float | None
    homophily: float | None  # of its own edges


def graph_facts(graph: Data) -> GraphFacts:
    """Count a graph; linear in its nodes and edges."""
    source, target = graph.edge_index.numpy()
    n, y = int(graph.num_nodes), graph.y.numpy()
    ones = np.ones(len(source), dtype=np.int8)
    adjacency = sparse.coo_array((ones, (source, target)), shape=(n, n))
    components, component = connected_components(adjacency, directed=False)
    by_label = np.bincount(y[y >= 0], minlength=len(graph.label_names))
    known, same = _alike(y, source, target)
    return GraphFacts(
        name=str(graph.name),
        nodes=n,
        edges=len(source) // 2,
        features=_features(feature_matrix(graph)),
        labels=dict(zip(graph.label_names, by_label.tolist(), strict=True)),
        unlabelled=int((y < 0).sum()),
        isolated=int((np.bincount(source, minlength=n) == 0).sum()),
        components=int(components),
        largest_component=int(np.bincount(component).max()),
        homophily=_share(int(same.sum()), int(known.sum())),
        missing=_missing(graph),
        own_clients=len(graph.client_names) if "client" in graph else 0,
    )


def client_facts(
    graph: Data, partition: Partition, calibration: NDArray[np.int64] | None
) -> tuple[ClientFacts, ...]:
    """Count every client's part; ``calibration`` is how many such nodes each has, if known."""
    K, owner, y = partition.clients, partition.client, graph.y.numpy()
    source, target = graph.edge_index.numpy()
    nodes, labelled = np.bincount(owner, minlength=K), np.bincount(owner[y >= 0], minlength=K)
    of_edge = owner[source]
    kept = of_edge == owner[target]
    # Every edge is there in both directions, so an inner one is seen twice by its client, and a
    # cut one once by each of its two.
    inner = np.bincount(of_edge[kept], minlength=K) // 2
    cut = np.bincount(of_edge[~kept], minlength=K)
    known, same = _alike(y, source, target)
    judged = np.bincount(of_edge[kept & known], minlength=K)
    alike = np.bincount(of_edge[kept & same], minlength=K)
    C = len(graph.label_names)
    table = np.bincount(owner[y >= 0] * C + y[y >= 0], minlength=K * C).reshape(K, C)
    overall = table.sum(axis=0) / max(int(table.sum()), 1)
    facts = []
    for k in range(K):
        distance = None
        if labelled[k]:
            distance = float(np.abs(table[k] / labelled[k] - overall).sum() / 2)
        facts.append(
            ClientFacts(
                name=partition.names[k],
                nodes=int(nodes[k]),
                labelled=int(labelled[k]),
                labels=dict(zip(graph.label_names, table[k].tolist(), strict=True)),
                calibration=None if calibration is None else int(calibration[k]),
                edges=int(inner[k]),
                cut_edges=int(cut[k]),
                cut_share=_share(int(cut[k]), int(inner[k] + cut[k])) or 0.0,
                label_distance=distance,
                homophily=_share(int(alike[k]), int(judged[k])),
            )
        )
    return tuple(facts)


def _missing(graph: Data) -> dict[str, int]:
    """Numbers that are marked as empty, and nodes without any of a column's words."""
    if "columns" not in graph:
        return {}
    x = feature_matrix(graph)
    totals, gaps = x.sum(axis=0, dtype=np.float64), np.zeros(x.shape[1], dtype=np.int64)
    if "missing" in graph:
        gaps = np.bincount(graph.missing.numpy()[1], minlength=x.shape[1])
    counts, at = {}, 0
    for name, kind in graph.columns:
        words = isinstance(kind, tuple)
        width = len(kind) if words else 1
        counts[name] = len(graph.y) - int(totals[at : at + width].sum()) if words else int(gaps[at])
        at += width
    return {name: count for name, count in counts.items() if count}


def _features(x: sparse.csr_array | NDArray[np.float32]) -> Features:
    rows, columns = x.shape
    if isinstance(x, np.ndarray):
        # Column by column: a mask of the whole matrix would double the memory that it takes.
        other = np.array([np.any((column != 0) & (column != 1)) for column in x.T])
        filled = int(np.count_nonzero(x))
    else:
        other = np.bincount(x.indices[(x.data != 0) & (x.data != 1)], minlength=columns)
        filled = int(x.count_nonzero())
    binary = int((other == 0).sum())
    share = filled / max(rows * columns, 1)
    return Features(columns, binary, columns - binary, not isinstance(x, np.ndarray), share)


def _alike(
    y: NDArray[np.int64], source: NDArray[np.int64], target: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which edges join two known labels, and which of them two equal ones."""
    first, second = y[source], y[target]
    known = (first >= 0) & (second >= 0)
    return known, known & (first == second)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
