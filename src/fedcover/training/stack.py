"""All clients of all seeds as one block-diagonal graph with one tensor of weights a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.models.gnn import Weights, operators, propagation
from fedcover.training.first_layer import DenseFirst, SparseFirst
from fedcover.training.layout import Index
from fedcover.training.plan import Federation, Plan, inputs, log_prior

# Shares of non-zero features from which the dense first layer is faster (benchmarks/speed.py);
# mini-batches cut a new field each step, which is cheap for dense rows.
DENSE_FROM = 0.2
DENSE_FROM_IN_BATCHES = 0.05

Parameters = Weights
"""The weights of all stacked clients: every tensor has the clients in front. Of sparse features,
``first`` has the touched rows alone, (rows, o·hidden); of dense ones (clients, o·features, hidden).
"""


class Stack:
    """The stacked graph; nodes are numbered client after client.

    The clients stand in order of their training nodes, most first, so that those with equally
    many local steps are neighbours.
    """

    def __init__(self, federations: Sequence[Federation], plan: Plan) -> None:
        members = [
            (f, number, replace(client, x=inputs(client, plan)))
            for f, federation in enumerate(federations)
            for number, client in enumerate(federation.clients, federation.first)
        ]
        members.sort(key=lambda member: -len(member[2].train))
        self.plan, self.federations = plan, len(federations)
        self.clients = [client for _, _, client in members]
        self.federation_of = np.array([f for f, _, _ in members])
        self.keys = [(int(federations[f].seed), number) for f, number, _ in members]
        self.seed_of, self.number_of = np.array(self.keys).T
        self.starts = np.cumsum([0, *(client.nodes for client in self.clients)])
        self.client_of_node = np.repeat(np.arange(len(self.clients)), np.diff(self.starts))
        self.y = np.concatenate([client.y for client in self.clients])
        self.operators = operators(plan.model)
        self.features = self.clients[0].x.shape[1]

        edges = [c.edge_index + s for c, s in zip(self.clients, self.starts, strict=False)]
        weight = np.concatenate([client.edge_weight for client in self.clients])
        nodes = len(self.y)
        self.propagation = propagation(plan.model, np.concatenate(edges, axis=1), nodes, weight)
        stored = sum(c.x.nnz if sp.issparse(c.x) else np.count_nonzero(c.x) for c in self.clients)
        dense_from = DENSE_FROM if plan.batch_size is None else DENSE_FROM_IN_BATCHES
        layer = SparseFirst if stored < dense_from * nodes * self.features else DenseFirst
        self.first = layer(self)

    def first_rows(self, start: int, stop: int) -> slice:
        """The rows of the first layer's weights that belong to clients ``start:stop``."""
        return slice(*np.searchsorted(self.first.client_of_row, [start, stop]).tolist())

    def prior(self, nodes: Index) -> Tensor | None:
        """What is added to the logits of these nodes; None: nothing."""
        plan = self.plan
        if plan.task == "links" or plan.prior is None:
            return None
        priors = np.stack([log_prior(client, plan) for client in self.clients])
        return torch.from_numpy(priors[self.client_of_node[nodes]]).to(plan.dtype)

    def nodes(self, role: str) -> Index:
        """The numbers of all ``train`` or ``valid`` nodes, in ascending order."""
        local = [np.sort(getattr(client, role)) for client in self.clients]
        return np.concatenate([n + s for n, s in zip(local, self.starts, strict=False)])
