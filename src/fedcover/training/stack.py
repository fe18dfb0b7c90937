r"""All clients of all seeds as one block-diagonal graph with one tensor of weights a layer.

The first layer has the cheaper of two forms:

* Sparse features: :math:`P(XW)`. A client keeps only the rows of :math:`W` whose features occur in
  its graph: the others have no gradient, so Adam leaves them where they were, and the stack grows
  with the data rather than with clients × features. (With weight decay it keeps all rows.)
* Dense features: :math:`(PX)W`, with :math:`PX` computed once, then one batched product a step.

Either gives the layer ``at`` some nodes, before the activation: ``rows`` of output, padding
included, and their ``places``, the output row of each node.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.models.gnn import Weights, operators, propagation
from fedcover.training.layout import Bag, Layout, TwoWay, distinct
from fedcover.training.plan import Federation, Index, Plan, inputs, log_prior

# Shares of non-zero features from which the dense first layer is faster. PubMed with the means of
# +neighbours, 0.22, trains half as long again with it. Mini-batches cut a new field each step,
# which is cheap for dense rows.
DENSE_FROM = 0.3
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


class SparseFirst:
    """Touched weight rows: row r is that of ``feature_of_row[r]`` at ``client_of_row[r]``."""

    def __init__(self, stack: Stack) -> None:
        x = sp.vstack([sp.csr_array(client.x) for client in stack.clients], format="csr")
        client = np.repeat(stack.client_of_node, np.diff(x.indptr))
        possible = len(stack.clients) * stack.features
        row = client * stack.features + x.indices
        if stack.plan.weight_decay:  # which moves every row
            touched, column = np.arange(possible), row
        else:
            touched, column = distinct(row, possible)
        self.x = sp.csr_array((x.data, column, x.indptr), shape=(len(stack.y), len(touched)))
        self.x.sum_duplicates()
        self.client_of_row, self.feature_of_row = np.divmod(touched, stack.features)

    def at(self, stack: Stack, nodes: Index, gradient: bool) -> "SparseHidden":
        """The layer at these nodes."""
        return SparseHidden(self.x, stack, nodes, gradient)


class SparseHidden:
    """P(XW) + b. The bias enters as more rows of the table that P reads."""

    def __init__(self, x: sp.csr_array, stack: Stack, nodes: Index, gradient: bool) -> None:
        dtype = stack.plan.dtype
        parts = [p[nodes].tocoo() for p in stack.propagation]
        inputs, place = distinct(np.concatenate([p.col for p in parts]), len(stack.y))
        self._count = len(parts)
        self._table_rows = len(inputs) * self._count
        ends = np.cumsum([p.nnz for p in parts])[:-1]
        columns = [own * self._count + i for i, own in enumerate(np.split(place, ends))]
        self.rows, self.places = len(nodes), np.arange(len(nodes))
        value = np.concatenate([*(p.data for p in parts), np.ones(len(nodes))])
        row = np.concatenate([*(p.row for p in parts), self.places])
        column = np.concatenate([*columns, self._table_rows + stack.client_of_node[nodes]])
        shape = (self.rows, self._table_rows + len(stack.clients))
        self._p = TwoWay(sp.csr_array((value, (row, column)), shape=shape), dtype, gradient)
        self._x = TwoWay(x[inputs], dtype, gradient)

    def forward(self, weights: Tensor, bias: Tensor) -> Tensor:
        """Rows × hidden."""
        table = self._x.forward(weights).view(self._table_rows, bias.shape[1])
        return self._p.forward(torch.cat([table, bias]))

    def backward(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weights and bias, given that of the output."""
        table = self._p.backward(gradient)
        inputs = table[: self._table_rows].view(self._table_rows // self._count, -1)
        return self._x.backward(inputs), table[self._table_rows :]


class DenseFirst:
    """One weight matrix a client; the propagated features are computed once."""

    def __init__(self, stack: Stack) -> None:
        parts = [c.x.toarray() if sp.issparse(c.x) else c.x for c in stack.clients]
        x = torch.from_numpy(np.concatenate(parts)).to(stack.plan.dtype)
        nodes, features = x.shape
        # The row of zeros at the end is what padding reads: one copy then serves a whole field.
        self.px = x.new_zeros(nodes + 1, len(stack.propagation) * features)
        for i, p in enumerate(stack.propagation):
            self.px[:nodes, i * features : (i + 1) * features] = Bag(p, x.dtype)(x)
        self.client_of_row = np.arange(len(stack.clients))

    def at(self, stack: Stack, nodes: Index, gradient: bool) -> "DenseHidden":  # noqa: ARG002
        """The layer at these nodes, with or without a gradient."""
        return DenseHidden(self.px, stack, nodes)


class DenseHidden:
    """(PX)W + b in padded batches."""

    def __init__(self, px: Tensor, stack: Stack, nodes: Index) -> None:
        client = stack.client_of_node[nodes]
        self._layout = Layout(np.bincount(client, minlength=len(stack.clients)))
        self.rows, self.places = self._layout.rows, self._layout.places(client)
        source = np.full(self.rows, len(px) - 1)
        source[self.places] = nodes
        self._px = px.index_select(0, torch.from_numpy(source))

    def forward(self, weights: Tensor, bias: Tensor) -> Tensor:
        """Rows × hidden."""
        output = bias.new_empty(self.rows, bias.shape[1])
        for block in self._layout.blocks:
            of, px = block.clients, block.batch(self._px)
            torch.baddbmm(bias[of].unsqueeze(1), px, weights[of], out=block.batch(output))
        return output

    def backward(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weights and bias, given that of the output."""
        weights, bias = [], []
        for block in self._layout.blocks:
            batch = block.batch(gradient)
            # The transposed product: a third faster than the other way round.
            product = torch.bmm(batch.transpose(1, 2), block.batch(self._px))
            weights.append(product.transpose(1, 2))
            bias.append(batch.sum(dim=1))
        return torch.cat(weights).contiguous(), torch.cat(bias)
