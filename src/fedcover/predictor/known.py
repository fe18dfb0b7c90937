"""The nodes that a predictor was made with: whose they are, what they were for, and whether a later
graph still has them as they were."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.graphs.assemble import feature_matrix

HOPS = 2  # how far a model of two layers looks


@dataclass(frozen=True)
class Known:
    """One entry a node, in the graph's order: its hashed name, its client, its role, APS's u, and
    a fingerprint of its features and neighbours."""

    names: NDArray[np.uint64]
    client: NDArray[np.int64]
    role: NDArray[np.int8]
    u: NDArray[np.float64]
    print: NDArray[np.uint64]

    def places(self, names: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Where each of these names stands here; -1 for a node that is new."""
        order = np.argsort(self.names, kind="stable")
        at = np.minimum(np.searchsorted(self.names, names, sorter=order), len(order) - 1)
        found = order[at]
        return np.where(self.names[found] == names, found, -1)


def hashed(ids: Sequence[object]) -> NDArray[np.uint64]:
    """Eight bytes for each name: a predictor can tell a node that it knows, and lists none."""
    digests = (hashlib.blake2b(str(i).encode(), digest_size=8).digest() for i in ids)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def fingerprints(graph: Data, names: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For every node eight bytes that change with its features or its neighbours."""
    x = feature_matrix(graph)
    direction = np.random.default_rng(0xF1).standard_normal(x.shape[1])
    own = np.asarray(sparse.csr_array(x) @ direction, dtype=np.float64).view(np.uint64)
    source, target = graph.edge_index.numpy()
    around = np.zeros(len(names), dtype=np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(around, target, names[source] * np.uint64(0x9E3779B97F4A7C15))
        return np.asarray(own ^ (around * np.uint64(3)) ^ names)


def touched(graph: Data, changed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The nodes whose outputs may differ because these have changed."""
    source, target = graph.edge_index.numpy()
    reached = changed.copy()
    for _ in range(HOPS):
        reached[target[reached[source]]] = True
    return reached
