r"""Neighbours that a party hides from itself, so that it knows which ones it lost (FedSage+, 4.1).

The neighbours that the cut took are unknown. Those that a party hides itself are not: from what is
left, a generator learns to restore them. A generated vector of node v is compared with the nearest
of v's hidden neighbours: :math:`\min_{u \in N(v) \cap V^{hidden}} \|\tilde x_v^p - x_u\|^2`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.models.vae import dense
from fedcover.training.layout import Layout
from fedcover.training.plan import Index, PartyGraph


@dataclass(frozen=True)
class Impaired:
    """A party's graph without the hidden nodes' edges.

    ``graph`` keeps all node numbers; its training nodes are the visible ones, and nothing is
    ever computed at or from the others. ``missing`` (nodes, hidden) has a 1 where a visible node
    lost a hidden neighbour.
    """

    graph: PartyGraph
    hidden: Index
    missing: sp.csr_array

    @property
    def visible(self) -> Index:
        """The nodes that are left, ascending."""
        return self.graph.train


def impair(graph: PartyGraph, share: float, rng: np.random.Generator) -> Impaired:
    """Hide about ``share`` of the nodes: at least one of two or more, and never all."""
    nodes = graph.nodes
    count = min(max(round(share * nodes), 1), nodes - 1)
    is_hidden = np.zeros(nodes, dtype=bool)
    is_hidden[rng.permutation(nodes)[:count]] = True
    hidden, visible = np.flatnonzero(is_hidden), np.flatnonzero(~is_hidden)
    source, target = graph.edge_index[:, ~is_hidden[graph.edge_index[1]]]
    lost = is_hidden[source]
    pairs = (target[lost], np.searchsorted(hidden, source[lost]))
    ones = np.ones(int(lost.sum()), dtype=np.float32)
    missing = sp.csr_array((ones, pairs), shape=(nodes, len(hidden)))
    kept = np.stack([source[~lost], target[~lost]])
    without = replace(graph, edge_index=kept, train=visible, valid=visible[:0])
    return Impaired(without, hidden, missing)


class Matching:
    """The hidden neighbours of all stacked parties; nodes have their numbers in the stack."""

    def __init__(self, impaired: Sequence[Impaired], most: int) -> None:
        counts = np.array([len(part.hidden) for part in impaired])
        self._layout = Layout(counts)
        places = self._layout.places(np.repeat(np.arange(len(counts)), counts))
        self._x = torch.zeros(self._layout.rows, impaired[0].graph.x.shape[1])
        for part, rows in zip(impaired, np.split(places, np.cumsum(counts)[:-1]), strict=True):
            self._x[torch.from_numpy(rows)] = torch.from_numpy(dense(part.graph.x[part.hidden]))
        self._half_norm = (0.5 * self._x.square().sum(dim=1)).numpy()

        missing = sp.block_diag([part.missing for part in impaired], format="csr")
        self._starts = missing.indptr.astype(np.int64)
        self._hidden = places[missing.indices]
        self.degree = np.diff(self._starts)
        first = np.cumsum([0, *(part.graph.nodes for part in impaired)])
        visible = [part.visible + start for part, start in zip(impaired, first, strict=False)]
        self._pairs = [np.repeat(own, np.minimum(self.degree[own], most)) for own in visible]
        self._idle = [int(own[0]) for own in visible]
        self.has_pairs = np.array([len(pairs) > 0 for pairs in self._pairs])

    def draw(self, rngs: Sequence[np.random.Generator], rows: int) -> Index:
        """For each party ``rows`` nodes, drawn as often as they have vectors in the loss.

        A node with n hidden neighbours has min(n, most). A party whose nodes have none gets one
        of them all the same, and ``has_pairs`` is false there.
        """
        drawn = [
            pairs[rng.integers(len(pairs), size=rows)] if len(pairs) else np.full(rows, idle)
            for pairs, idle, rng in zip(self._pairs, self._idle, rngs, strict=True)
        ]
        return np.stack(drawn)

    def nearest(self, generated: Tensor, nodes: Index) -> Tensor:
        """For each row of ``generated`` (parties, rows, features), made for the node of the same
        place in ``nodes``, the features of that node's nearest hidden neighbour."""
        rows = generated.shape[1]
        products = generated.new_empty(self._layout.rows, rows)
        for block in self._layout.blocks:
            mine = generated[block.clients].transpose(1, 2)
            torch.bmm(block.batch(self._x), mine, out=block.batch(products))
        flat = nodes.ravel()
        counts = self.degree[flat]
        row = np.repeat(np.arange(len(flat)), counts)
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        candidate = self._hidden[self._starts[flat][row] + within]
        with np.errstate(invalid="ignore"):  # diverged training is noticed by its caller
            distance = self._half_norm[candidate] - products.numpy()[candidate, row % rows]
        chosen = np.zeros(len(flat), dtype=np.int64)
        some = counts > 0
        if some.any():
            least = np.minimum.reduceat(distance, (np.cumsum(counts) - counts)[some])
            is_least = np.flatnonzero(distance == np.repeat(least, counts[some]))[::-1]
            chosen[row[is_least]] = candidate[is_least]  # of equally near ones the first
        return self._x[torch.from_numpy(chosen)].view_as(generated)
