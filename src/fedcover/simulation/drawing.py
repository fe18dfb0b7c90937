"""What a run's page shows of single nodes: the first seed's graph, or a sample of it.

A page is one file that opens at once, so a large graph is sampled: connected pieces around nodes
that have a set, as many of each client as it has nodes. Which nodes, only the graph and the seed
decide.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from fedcover.graphs.partition import boundary
from fedcover.graphs.splits import is_asked
from fedcover.simulation.repetition import Repetition
from fedcover.tables import spelt

MAX_NODES = 3_000
MAX_EDGES = 12_000
ROLES = ("training", "validation", "calibration", "test", "unlabelled")
"""By number; the last is also that of :data:`~fedcover.graphs.splits.NO_ROLE`, -1."""


@dataclass(frozen=True)
class Shown:
    """One repetition and the ``nodes`` (ascending) of it that are drawn and can be looked at."""

    repetition: Repetition
    nodes: NDArray[np.int64]

    @cached_property
    def asked(self) -> NDArray[np.int64]:
        """Those that have a set: test nodes, and nodes without a label."""
        return np.asarray(self.nodes[is_asked(self.repetition.roles[self.nodes])])

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """``nodes.parquet`` and ``edges.parquet``."""
        from fedcover.report.layout import positions  # the page's: no result depends on it

        graph, partition = self.repetition.graph, self.repetition.partition
        nodes, n, between = self.nodes, int(graph.num_nodes), graph.edge_index.numpy()
        position = np.full(n, -1)
        position[nodes] = np.arange(len(nodes))
        ends = position[between[:, between[0] < between[1]]]
        edges = ends[:, (ends >= 0).all(axis=0)]  # between shown nodes, each once
        client = partition.client[nodes]
        cut = client[edges[0]] != client[edges[1]]
        place = positions(client, edges, partition.clients).astype(np.float32)
        drawn = np.arange(edges.shape[1])
        if len(drawn) > MAX_EDGES:
            rng = np.random.default_rng([self.repetition.seed, 0xED6E])
            drawn = np.sort(rng.choice(len(drawn), MAX_EDGES, replace=False))
        ids = pl.Series(np.asarray(graph.node_ids)[nodes]).cast(pl.String)
        node_columns = {
            "node": ids,
            "client": spelt(partition.names, client),
            "role": spelt(ROLES, self.repetition.roles[nodes]),
            "label": spelt([*graph.label_names, None], graph.y.numpy()[nodes]),
            "boundary": boundary(graph, partition)[nodes],
            "degree": np.bincount(between[0], minlength=n)[nodes],
            "lost": np.bincount(partition.cut_edges[0], minlength=n)[nodes],
            "x": place[:, 0],
            "y": place[:, 1],
        }
        if "group" in graph:
            node_columns["group"] = spelt(graph.group_names, graph.group.numpy()[nodes])
        source, target = (ids.gather(ends[drawn]) for ends in edges)
        edge_columns = {"source": source, "target": target, "cut": cut[drawn]}
        return pl.DataFrame(node_columns), pl.DataFrame(edge_columns)


def shown(repetition: Repetition, most: int = MAX_NODES) -> Shown:
    """All nodes of a small graph; of a larger one ``most``, in pieces that hang together."""
    n = int(repetition.graph.num_nodes)
    if n <= most:
        return Shown(repetition, np.arange(n))
    client, clients = repetition.partition.client, repetition.partition.clients
    source, target = repetition.graph.edge_index.numpy()
    graph = sparse.csr_array((np.ones(len(source), np.int8), (source, target)), (n, n))
    counts = np.bincount(client, minlength=clients)
    quota = np.maximum(counts * most // n, 1)
    quota[np.argsort(-quota, kind="stable")[most:]] = 0  # more clients than room
    order = np.random.default_rng([repetition.seed, 0x5404]).permutation(n)
    order = order[np.argsort(~is_asked(repetition.roles[order]), kind="stable")]
    starts = order[np.argsort(client[order], kind="stable")]
    blocks = np.split(starts, np.cumsum(counts)[:-1])
    pairs = zip(blocks, quota.tolist(), strict=True)
    taken = [_walk(graph, client, block, few) for block, few in pairs if few]
    return Shown(repetition, np.sort(np.concatenate(taken)))


def _walk(
    graph: sparse.csr_array, client: NDArray[np.int64], starts: NDArray[np.int64], quota: int
) -> NDArray[np.int64]:
    """Breadth first inside one client, from its first start on, until the quota is met."""
    seen: dict[int, None] = {}
    pending = iter(starts.tolist())
    queue: list[int] = []
    while len(seen) < quota:
        node = queue.pop(0) if queue else next(pending)
        if node in seen:
            continue
        seen[node] = None
        near = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        same = near[client[near] == client[node]].tolist()
        queue += [other for other in same if other not in seen][:8]
    return np.fromiter(seen, dtype=np.int64)
