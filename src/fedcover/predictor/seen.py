"""A graph's nodes as a predictor sees them: whose they are, and which are new or have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError
from fedcover.graphs.assemble import source_of
from fedcover.graphs.splits import Role
from fedcover.predictor.known import Known, fingerprints, hashed, inside, located, touched

Links = tuple[int, NDArray[np.int64], NDArray[np.uint64]]
"""A client's number, and which of its generated neighbours is joined to which node, by the hash of
the node's name."""
_SEED = 0x0DD  # of the u of nodes that are new


@dataclass(frozen=True)
class Seen:
    """One entry a node."""

    names: NDArray[np.uint64]
    client: NDArray[np.int64]
    role: NDArray[np.int8]  # -1: none
    u: NDArray[np.float64]
    new: NDArray[np.bool_]
    changed: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        graph: Data,
        known: Known,
        clients: Sequence[str],
        given: bool,
        whole: bool = False,
        links: Sequence[Links] = (),
    ) -> Seen:
        """With ``given``, clients are taken from the graph's own column, else as they were.

        ``links`` join generated neighbours to nodes: what changes at one such node reaches the
        others. Models look along edges within a client or, if it is ``whole``, along all of the
        graph's.
        """
        names = hashed(graph.node_ids, known.salt)
        place = known.places(names)
        new = place < 0
        before = client = np.where(new, -1, known.client[place])
        if given:
            client = numbered(graph, "client", clients)
        elif new.any():
            client = _joined(graph, client, len(clients))
        edges = inside(graph, client, whole)
        prints = fingerprints(graph, names, known.salt, edges)
        differs = new | (client != before) | (prints != known.print[place])
        role = np.where(new, np.int8(-1), known.role[place])
        drawn = (names ^ np.uint64(_SEED)).astype(np.float64) / 2.0**64
        u = np.where(new, np.minimum(drawn, np.nextafter(1.0, 0.0)), known.u[place])
        changed = _reached(edges, differs, names, client, links)
        return cls(names, client, role, u, new, changed)

    @classmethod
    def same(cls, known: Known) -> Seen:
        """The nodes as they were."""
        no = np.zeros(len(known.names), dtype=bool)
        return cls(known.names, known.client, known.role, known.u, no, no)

    def kinds(self, changed: NDArray[np.bool_]) -> NDArray[np.object_]:
        """What each node is, as in ``PROMISES``; ``changed`` are those whose scores may have."""
        words = np.array([role.name.lower() for role in Role] + ["unlabelled"], dtype=object)
        kinds = words[self.role]
        kinds[changed & np.isin(self.role, (-1, Role.TEST))] = "changed"
        kinds[self.new] = "new"
        return np.asarray(kinds)


def numbered(graph: Data, column: str, names: Sequence[str]) -> NDArray[np.int64]:
    """The clients or groups of a graph's nodes, numbered as the predictor has them."""
    if column not in graph:
        raise DataError(f"{source_of(graph)} has no {column}s, which the predictor needs.")
    number = {name: k for k, name in enumerate(names)}
    own = graph[f"{column}_names"]
    for name in own:
        if name not in number:
            raise DataError(
                f"{source_of(graph)} has the {column} {name!r}; the predictor knows "
                f"{', '.join(names)}."
            )
    numbers = np.array([number[name] for name in own], dtype=np.int64)
    return np.asarray(numbers[graph[column].numpy()])


def _reached(
    edges: NDArray[np.int64],
    differs: NDArray[np.bool_],
    names: NDArray[np.uint64],
    client: NDArray[np.int64],
    links: Sequence[Links],
) -> NDArray[np.bool_]:
    """The nodes whose outputs may differ; generated neighbours are numbered after the nodes."""
    joined, count = [edges], len(names)
    for number, generated, linked in links:
        node = located(names, linked)
        there = (node >= 0) & (client[node] == number)
        pair = np.stack([generated[there] + count, node[there]])
        joined += [pair, pair[::-1]]
        # A neighbour that lost a node, which is gone or at another client, has changed itself.
        lost = np.unique(generated[~there]) + count
        count += int(generated.max(initial=-1)) + 1
        differs = np.concatenate([differs, np.zeros(count - len(differs), dtype=bool)])
        differs[lost] = True
    return touched(np.concatenate(joined, axis=1), differs)[: len(names)]


def _joined(graph: Data, client: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    """New nodes go to the client that most of their neighbours are at, of several to the first;
    without any, to the one with the fewest nodes.

    They join in steps, each by those neighbours that are placed before it; these have all joined in
    the step before, for one that had joined earlier would have brought the node along.
    """
    client = client.copy()
    source, target = graph.edge_index.numpy()
    smallest = int(np.bincount(client[client >= 0], minlength=clients).argmin())
    asking = client[target] < 0
    source, target = source[asking], target[asking]
    target = target[np.argsort(source, kind="stable")]
    ends = np.cumsum(np.bincount(source, minlength=len(client)))  # of each source's edges
    starts = np.concatenate([[0], ends])
    joined = np.flatnonzero(client >= 0)
    while len(joined):
        start, length = starts[joined], ends[joined] - starts[joined]
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        asked = target[np.repeat(start, length) + within]
        voice = np.repeat(client[joined], length)
        free = client[asked] < 0
        pair, votes = np.unique(asked[free] * clients + voice[free], return_counts=True)
        node, choice = np.divmod(pair, clients)  # in ascending order, as pairs are
        most = np.lexsort((-votes, node))[np.flatnonzero(np.diff(node, prepend=-1))]
        joined = node[most]
        client[joined] = choice[most]
    client[client < 0] = smallest
    return client
