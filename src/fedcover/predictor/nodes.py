"""The nodes that a predictor was made with, and those of a later graph: whose they are, what they
were for, and which are new or have changed."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError
from fedcover.graphs.assemble import feature_matrix, source_of
from fedcover.graphs.splits import Role
from fedcover.hashing import splitmix

if TYPE_CHECKING:
    from fedcover.predictor.predictor import Predictor

HOPS = 2  # how far a model of two layers looks
SALT_BYTES = 16
_GAP = np.uint64(0x6A70)  # stands for a feature that is missing
_SEED = 0x0DD  # of the u of nodes that are new


@dataclass(frozen=True)
class RunNodes:
    """One entry a node, in the graph's order: its hashed name, its client, its role, APS's u, and
    a fingerprint of its features and neighbours; of its similar nodes, too, where a score looks at
    them, and its group, where groups have thresholds. ``salt`` enters all hashes."""

    salt: bytes
    names: NDArray[np.uint64]
    client: NDArray[np.int64]
    role: NDArray[np.int8]
    u: NDArray[np.float64]
    print: NDArray[np.uint64]
    alike: NDArray[np.uint64] | None = None
    group: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Generated:
    """A client's generated neighbours: their features, and which of them (``source``) is linked to
    which node (``target``, the hash of its name)."""

    features: sparse.csr_array
    source: NDArray[np.int64]
    target: NDArray[np.uint64]
    weight: NDArray[np.float64]  # of each link


@dataclass(frozen=True)
class GraphNodes:
    """One entry a node of a graph that a predictor is asked about."""

    names: NDArray[np.uint64]
    client: NDArray[np.int64]
    role: NDArray[np.int8]  # -1: none
    u: NDArray[np.float64]
    place: NDArray[np.int64]  # among the nodes of the run; -1: none
    changed: NDArray[np.bool_]

    @property
    def new(self) -> NDArray[np.bool_]:
        """Those that were not in the run."""
        return self.place < 0

    @classmethod
    def of(cls, graph: Data, predictor: "Predictor") -> "GraphNodes":
        """Clients are taken from the graph's own column if they were in the run, else kept."""
        known, clients, whole = predictor.known, predictor.clients, predictor.whole
        names = hashed(graph.node_ids, known.salt)
        place = located(known.names, names)
        new = place < 0
        before = client = np.where(new, -1, known.client[place])
        if predictor.given:
            client = numbered(graph, "client", clients)
        elif new.any():
            client = _joined(graph, client, len(clients))
        edges = inside(graph, client, whole)
        prints = fingerprints(graph, names, known.salt, edges)
        differs = new | (client != before) | (prints != known.print[place])
        role = np.where(new, np.int8(-1), known.role[place])
        drawn = (names ^ np.uint64(_SEED)).astype(np.float64) / 2.0**64
        u = np.where(new, np.minimum(drawn, np.nextafter(1.0, 0.0)), known.u[place])
        changed = _reached(edges, differs, names, client, predictor.generated)
        return cls(names, client, role, u, place, changed)

    @classmethod
    def same(cls, known: RunNodes) -> "GraphNodes":
        """The nodes as they were."""
        place = np.arange(len(known.names))
        return cls(known.names, known.client, known.role, known.u, place, place < 0)

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
    own, number = graph[f"{column}_names"], {name: k for k, name in enumerate(names)}
    if strange := [name for name in own if name not in number]:
        raise DataError(
            f"{source_of(graph)} has the {column} {strange[0]!r}; the predictor knows "
            f"{', '.join(names)}."
        )
    numbers = np.array([number[name] for name in own], dtype=np.int64)
    return np.asarray(numbers[graph[column].numpy()])


def _reached(
    edges: NDArray[np.int64],
    differs: NDArray[np.bool_],
    names: NDArray[np.uint64],
    client: NDArray[np.int64],
    generated: Sequence[Generated | None],
) -> NDArray[np.bool_]:
    """The nodes whose outputs may differ: a change at a node reaches those that share a generated
    neighbour with it. Generated neighbours are numbered after the nodes."""
    joined, count = [edges], len(names)
    for number, own in enumerate(generated):
        if own is None:
            continue
        node = located(names, own.target)
        there = (node >= 0) & (client[node] == number)
        pair = np.stack([own.source[there] + count, node[there]])
        joined += [pair, pair[::-1]]
        # A neighbour that lost a node, which is gone or at another client, has changed itself.
        lost = own.source[~there] + count
        count += int(own.source.max(initial=-1)) + 1
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


def located(names: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where each of the wanted stands among the names; -1 where it does not."""
    if len(names) == 0:
        return np.full(len(wanted), -1)
    order = np.argsort(names, kind="stable")
    at = np.searchsorted(names, wanted, sorter=order)
    found = order[np.minimum(at, len(order) - 1)]
    return np.where(names[found] == wanted, found, -1)


def salt_of(graph: Data) -> bytes:
    """Bytes that no other graph has, and that the same one has again: runs can be repeated."""
    x = sparse.csr_array(feature_matrix(graph))
    digest = hashlib.blake2b(digest_size=SALT_BYTES)
    digest.update("\n".join(map(str, graph.node_ids)).encode())
    for array in (x.data, x.indices, x.indptr, graph.edge_index.numpy()):
        digest.update(array.tobytes())
    return digest.digest()


def hashed(ids: Sequence[object], salt: bytes) -> NDArray[np.uint64]:
    """Eight bytes for each name. Whoever guesses a name can see whether it is there; a list of
    hashes made beforehand, or of another predictor, tells nothing."""
    return _digests((str(one).encode() for one in ids), salt)


def fingerprints(
    graph: Data, names: NDArray[np.uint64], salt: bytes, edges: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """For every node eight bytes that change with its features, its gaps or its neighbours, by
    ``edges`` (2, m)."""
    x = sparse.csr_array(feature_matrix(graph)).tocoo()
    bits = x.data.astype(np.float32).view(np.uint32).astype(np.uint64)
    row, column = x.row, x.col
    if "missing" in graph:
        gaps = graph.missing.numpy()
        row, column = np.concatenate([row, gaps[0]]), np.concatenate([column, gaps[1]])
        bits = np.concatenate([bits, np.full(gaps.shape[1], _GAP) << np.uint64(32)])
    place = splitmix(np.arange(1, x.shape[1] + 1, dtype=np.uint64))
    parts = np.zeros((len(names), 3), dtype=np.uint64)
    source, target = edges
    np.add.at(parts[:, 0], row, splitmix(bits ^ place[column]))
    np.add.at(parts[:, 1], target, splitmix(names[source]))
    parts[:, 2] = names
    return _digests((node.tobytes() for node in parts), salt)


def inside(graph: Data, client: NDArray[np.int64], whole: bool) -> NDArray[np.int64]:
    """The edges (2, m) that a model sees: those within a client, or all of a ``whole`` graph."""
    edges: NDArray[np.int64] = graph.edge_index.numpy()
    return edges if whole else edges[:, client[edges[0]] == client[edges[1]]]


def touched(
    edges: NDArray[np.int64], changed: NDArray[np.bool_], hops: int = HOPS
) -> NDArray[np.bool_]:
    """The nodes whose outputs may differ because these have changed."""
    reached, (source, target) = changed.copy(), edges
    for _ in range(hops):
        reached[target[reached[source]]] = True
    return reached


def _digests(texts: Iterable[bytes], salt: bytes) -> NDArray[np.uint64]:
    made = (hashlib.blake2b(text, digest_size=8, key=salt).digest() for text in texts)
    return np.frombuffer(b"".join(made), dtype="<u8").astype(np.uint64)
