"""The nodes that a predictor was made with: whose they are, what they were for, and whether a later
graph still has them as they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.graphs.assemble import feature_matrix
from fedcover.hashing import splitmix

HOPS = 2  # how far a model of two layers looks
SALT_BYTES = 16
_GAP = np.uint64(0x6A70)  # stands for a feature that is missing


@dataclass(frozen=True)
class Known:
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

    def places(self, names: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Where each of these names stands here; -1 for a node that is new."""
        return located(self.names, names)


def located(names: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where each of the wanted stands among the names; -1 where it does not."""
    if len(names) == 0:
        return np.full(len(wanted), -1)
    order = np.argsort(names, kind="stable")
    at = np.minimum(np.searchsorted(names, wanted, sorter=order), len(order) - 1)
    found = order[at]
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


def list_prints(names: NDArray[np.uint64], nodes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """For every node eight bytes that change with its list (n, k) of nodes; -1 is no node."""
    listed = np.where(nodes >= 0, splitmix(names[nodes]), np.uint64(0))
    return np.asarray(listed.sum(axis=1, dtype=np.uint64))


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
