"""Divide a graph among clients (paper, section 5.1: METIS), keeping the cut edges as the truth.

The edges between clients are those nobody sees in the federation; the paper calls them missing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError
from fedcover.graphs.assemble import adjacency, source_of
from fedcover.graphs.check import check_graph
from fedcover.graphs.label_skew import label_skew
from fedcover.graphs.labels import check_count, is_integer
from fedcover.graphs.splits import by_client

MAX_SEED = 2**31 - 2


@dataclass(frozen=True)
class Partition:
    """Which client holds which node, and the directed edges that the division cut."""

    client: NDArray[np.int64]
    clients: int
    method: str
    seed: int
    cut_edges: NDArray[np.int64]
    names: tuple[str, ...]
    """What errors and tables call the clients: their column's names, or their numbers."""


@dataclass(frozen=True)
class ClientGraph:
    """What one client holds: its nodes (ascending, as numbers of the whole graph) and the edges
    between them, ``edge_index`` (2, m), as positions in ``nodes``."""

    nodes: NDArray[np.int64]
    edge_index: NDArray[np.int64]


def partition(
    graph: Data,
    clients: int | None = None,
    method: str = "metis",
    seed: int = 0,
    beta: float = 0.5,
) -> Partition:
    """Give every node of ``graph`` to exactly one of ``clients`` clients.

    ``metis``: METIS k-way, about equal sizes and few cut edges (the paper's). ``louvain``:
    Louvain communities, the largest first, each to the client with the fewest nodes so far; a
    community is never divided, so there are at most as many clients as communities. ``random``:
    equal sizes (± 1), no structure. ``label-skew``: clients with different labels, the more so the
    smaller ``beta`` (:func:`~fedcover.graphs.label_skew.label_skew`). ``given``: the graph's own
    ``client`` column, which fixes the number of clients. The same seed gives the same division
    (METIS: on the same platform). The graph passes :func:`check_graph` first, since METIS crashes
    on edges out of range.
    """
    if method not in METHODS:
        raise UsageError(f"partition is {method!r}, but must be one of {', '.join(METHODS)}.")
    if not is_integer(seed) or not 0 <= seed <= MAX_SEED:
        raise UsageError(f"seed is {seed!r}, but must be an integer from 0 to {MAX_SEED}.")
    if not (is_integer(beta) or isinstance(beta, float | np.floating)) or not 0 < beta < inf:
        raise UsageError(f"beta is {beta!r}, but must be a positive number.")
    graph = check_graph(graph)
    names = _client_names(graph, clients, method)
    client = METHODS[method](graph, len(names), int(seed), float(beta))
    without = np.flatnonzero(np.bincount(client, minlength=len(names)) == 0)
    if len(without):
        remedy = f" after partition {method!r} into {len(names)} clients; take fewer clients."
        if method == "given":
            remedy = (
                f": it is among client_names, but no entry of client is {without[0]}; number the "
                "clients without a gap."
            )
        raise DataError(f"Client {names[without[0]]} has no nodes{remedy}")
    edges = graph.edge_index.numpy()
    cut = edges[:, client[edges[0]] != client[edges[1]]]
    return Partition(client, len(names), method, int(seed), cut, names)


def client_graphs(graph: Data, partition: Partition) -> list[ClientGraph]:
    """Every client's induced subgraph, in one pass over nodes and edges."""
    client, counts = partition.client, np.bincount(partition.client, minlength=partition.clients)
    order = by_client(client)
    position = np.empty_like(order)
    position[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    edges = graph.edge_index.numpy()
    inside = edges[:, client[edges[0]] == client[edges[1]]]
    owner = client[inside[0]]
    local = position[inside[:, by_client(owner)]]
    edge_ends = np.cumsum(np.bincount(owner, minlength=partition.clients))[:-1]
    nodes = np.split(order, np.cumsum(counts)[:-1])
    return list(map(ClientGraph, nodes, np.split(local, edge_ends, axis=1)))


def boundary(graph: Data, partition: Partition) -> NDArray[np.bool_]:
    """Mark the nodes (n,) that lost an edge to the cut; the others are interior."""
    lost = np.zeros(int(graph.num_nodes), dtype=bool)
    lost[partition.cut_edges[0]] = True
    return lost


def _client_names(graph: Data, clients: int | None, method: str) -> tuple[str, ...]:
    """Number the clients, or take their names from the graph, once ``clients`` makes sense."""
    if method == "given":
        if "client" not in graph:
            needed = "which partition 'given' needs"
            raise DataError(f"{source_of(graph)} has no client column, {needed}.")
        names = tuple(graph.client_names)
        if clients is not None and clients != len(names):
            column = f"the client column of {source_of(graph)}"
            raise UsageError(f"clients is {clients}, but {column} has {len(names)}.")
        return names
    number = check_count("clients", clients)
    if number > int(graph.num_nodes):
        raise UsageError(f"clients is {number}, but {graph.name} has only {graph.num_nodes} nodes.")
    return tuple(map(str, range(number)))


def _metis(graph: Data, clients: int, seed: int, _beta: float) -> NDArray[np.int64]:
    import pymetis

    source, target = graph.edge_index.numpy()
    dtype = pymetis.zero_copy_dtype()
    starts = np.searchsorted(source, np.arange(int(graph.num_nodes) + 1)).astype(dtype)
    neighbours = pymetis.CSRAdjacency(starts, target.astype(dtype))
    # METIS seeds the C library's rand(), for which 0 and 1 are the same seed: start from 1.
    options = pymetis.Options(seed=seed + 1)
    # Without recursive=False, pymetis takes another algorithm, bisection, for up to 8 parts.
    result = pymetis.part_graph(clients, neighbours, recursive=False, options=options)
    return np.asarray(result.vertex_part, dtype=np.int64)


def _louvain(graph: Data, clients: int, seed: int, _beta: float) -> NDArray[np.int64]:
    import networkx

    whole = networkx.from_scipy_sparse_array(adjacency(graph))
    communities = networkx.community.louvain_communities(whole, seed=seed)
    if len(communities) < clients:
        raise DataError(
            f"The number of Louvain communities of {graph.name} is {len(communities)}, fewer than "
            f"{clients} clients; take fewer clients or partition 'metis'."
        )
    client = np.empty(int(graph.num_nodes), dtype=np.int64)
    sizes = np.zeros(clients, dtype=np.int64)
    for nodes in sorted(communities, key=lambda nodes: (-len(nodes), min(nodes))):
        smallest = int(sizes.argmin())
        client[list(nodes)] = smallest
        sizes[smallest] += len(nodes)
    return client


def _random(graph: Data, clients: int, seed: int, _beta: float) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(np.arange(int(graph.num_nodes)) % clients)


def _given(graph: Data, _clients: int, _seed: int, _beta: float) -> NDArray[np.int64]:
    return graph.client.numpy()  # type: ignore[no-any-return]


METHODS: dict[str, Callable[[Data, int, int, float], NDArray[np.int64]]] = {
    "metis": _metis,
    "louvain": _louvain,
    "random": _random,
    "label-skew": label_skew,
    "given": _given,
}
"""The ways to divide a graph; each maps (graph, clients, seed, beta) to a client for each node."""
