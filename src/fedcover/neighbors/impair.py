"""Hide a share of a client's nodes, so that it knows which neighbours it lost (FedSage+, 4.1).

The neighbours that the cut took from a client are unknown to it. Those that it hides itself are
not: from what is left, a generator learns to restore them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedcover.federation import PartyGraph


@dataclass(frozen=True)
class Impaired:
    """A client's graph without the hidden nodes' edges.

    ``client`` keeps all node numbers; its training nodes are the visible ones, and nothing is
    ever computed at or from the others. ``missing`` (nodes, hidden) has a 1 where a visible node
    lost a hidden neighbour.
    """

    client: PartyGraph
    hidden: NDArray[np.int64]
    missing: sp.csr_array

    @property
    def visible(self) -> NDArray[np.int64]:
        """The nodes that are left, ascending."""
        return self.client.train


def impair(client: PartyGraph, share: float, rng: np.random.Generator) -> Impaired:
    """Hide about ``share`` of the nodes: at least one of two or more, and never all."""
    nodes = client.nodes
    count = min(max(round(share * nodes), 1), nodes - 1)
    is_hidden = np.zeros(nodes, dtype=bool)
    is_hidden[rng.permutation(nodes)[:count]] = True
    hidden = np.flatnonzero(is_hidden)
    source, target = client.edge_index
    lost = is_hidden[source] & ~is_hidden[target]
    place = np.searchsorted(hidden, source[lost])
    ones = np.ones(int(lost.sum()), dtype=np.float32)
    kept = client.edge_index[:, ~is_hidden[source] & ~is_hidden[target]]
    visible = np.flatnonzero(~is_hidden)
    return Impaired(
        replace(client, edge_index=kept, train=visible, valid=visible[:0]),
        hidden,
        sp.csr_array((ones, (target[lost], place)), shape=(nodes, len(hidden))),
    )
