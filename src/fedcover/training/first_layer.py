r"""The first layer of all stacked clients, in the cheaper of two forms.

* Sparse features: :math:`P(XW)`. A client keeps only the rows of :math:`W` whose features occur in
  its graph: the others have no gradient, so Adam leaves them where they were, and the stack grows
  with the data rather than with clients × features.
* Dense features: :math:`(PX)W`, with :math:`PX` computed once, then one batched product a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.training.layout import Bag, Index, Layout, TwoWay, distinct
from fedcover.training.plan import PartyGraph


class Hidden(Protocol):
    """The first layer at some nodes, before the activation."""

    rows: int  # of the output, padding included
    places: Index  # the output row of each node

    def forward(self, weights: Tensor, bias: Tensor) -> Tensor:
        """Rows × hidden."""
        ...

    def backward(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weights and bias, given that of the output."""
        ...


class SparseFirst:
    """Touched weight rows: row r is that of ``feature_of_row[r]`` at ``client_of_row[r]``."""

    def __init__(
        self,
        clients: Sequence[PartyGraph],
        starts: Index,
        propagation: list[sp.csr_array],
        dtype: torch.dtype,
    ) -> None:
        features = clients[0].x.shape[1]
        parts = [sp.coo_array(c.x) for c in clients]
        row = np.concatenate([p.row + s for p, s in zip(parts, starts, strict=False)])
        pair = np.concatenate([p.col + np.int64(k) * features for k, p in enumerate(parts)])
        touched, column = np.unique(pair, return_inverse=True)
        value = np.concatenate([p.data for p in parts])
        shape = (int(starts[-1]), len(touched))
        self.x = sp.csr_array((value, (row, column)), shape=shape)
        self.client_of_row, self.feature_of_row = np.divmod(touched, features)
        self.propagation = propagation
        self.client_of_node = np.repeat(np.arange(len(clients)), np.diff(starts))
        self.clients = len(clients)
        self.dtype = dtype

    def rows_of(self, start: int, stop: int) -> slice:
        """The touched rows of clients ``start:stop``; they stand together."""
        bounds = np.searchsorted(self.client_of_row, [start, stop])
        return slice(int(bounds[0]), int(bounds[1]))

    def at(self, nodes: Index, gradient: bool) -> Hidden:
        """The layer at these nodes."""
        return _SparseHidden(self, nodes, gradient)


class _SparseHidden:
    """P(XW) + b. The bias enters as more rows of the table that P reads."""

    def __init__(self, layer: SparseFirst, nodes: Index, gradient: bool) -> None:
        count = len(layer.propagation)
        parts = [p[nodes].tocoo() for p in layer.propagation]
        read = np.concatenate([p.col for p in parts])
        inputs, place = distinct(read, len(layer.client_of_node))
        self._table_rows = len(inputs) * count
        ends = np.cumsum([p.nnz for p in parts])[:-1]
        columns = [own * count + i for i, own in enumerate(np.split(place, ends))]
        bias_column = self._table_rows + layer.client_of_node[nodes]
        ones = np.ones(len(nodes))
        matrix = sp.csr_array(
            (
                np.concatenate([*(p.data for p in parts), ones]),
                (
                    np.concatenate([*(p.row for p in parts), np.arange(len(nodes))]),
                    np.concatenate([*columns, bias_column]),
                ),
            ),
            shape=(len(nodes), self._table_rows + layer.clients),
        )
        self._p = TwoWay(matrix, layer.dtype, gradient)
        self._x = TwoWay(layer.x[inputs], layer.dtype, gradient)
        self._count = count
        self.rows = len(nodes)
        self.places = np.arange(len(nodes))

    def forward(self, weights: Tensor, bias: Tensor) -> Tensor:
        table = self._x.forward(weights).view(self._table_rows, bias.shape[1])
        return self._p.forward(torch.cat([table, bias]))

    def backward(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        table = self._p.backward(gradient)
        inputs = table[: self._table_rows].view(self._table_rows // self._count, -1)
        return self._x.backward(inputs), table[self._table_rows :]


class DenseFirst:
    """One weight matrix a client; the propagated features are computed once."""

    def __init__(
        self,
        clients: Sequence[PartyGraph],
        starts: Index,
        propagation: list[sp.csr_array],
        dtype: torch.dtype,
    ) -> None:
        parts = [c.x.toarray() if sp.issparse(c.x) else c.x for c in clients]
        x = torch.from_numpy(np.concatenate(parts)).to(dtype)
        nodes, features = x.shape
        # The row of zeros at the end is what padding reads: one copy then serves a whole field.
        self.px = x.new_zeros(nodes + 1, len(propagation) * features)
        for i, p in enumerate(propagation):
            self.px[:nodes, i * features : (i + 1) * features] = Bag(p, dtype)(x)
        self.client_of_node = np.repeat(np.arange(len(clients)), np.diff(starts))
        self.clients = len(clients)

    def at(self, nodes: Index, gradient: bool) -> Hidden:  # noqa: ARG002 (kept for the twin's sake)
        """The layer at these nodes."""
        return _DenseHidden(self, nodes)


class _DenseHidden:
    """(PX)W + b in padded batches."""

    def __init__(self, layer: DenseFirst, nodes: Index) -> None:
        client = layer.client_of_node[nodes]
        self._layout = Layout(np.bincount(client, minlength=layer.clients))
        self.rows = self._layout.rows
        self.places = self._layout.places(client)
        source = np.full(self.rows, len(layer.px) - 1)
        source[self.places] = nodes
        self._px = layer.px.index_select(0, torch.from_numpy(source))

    def forward(self, weights: Tensor, bias: Tensor) -> Tensor:
        output = bias.new_empty(self.rows, bias.shape[1])
        for block in self._layout.blocks:
            of = block.clients
            torch.baddbmm(
                bias[of].unsqueeze(1), block.batch(self._px), weights[of], out=block.batch(output)
            )
        return output

    def backward(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        weights, bias = [], []
        for block in self._layout.blocks:
            batch = block.batch(gradient)
            # The transposed product: a third faster than the other way round.
            product = torch.bmm(batch.transpose(1, 2), block.batch(self._px))
            weights.append(product.transpose(1, 2))
            bias.append(batch.sum(dim=1))
        return torch.cat(weights).contiguous(), torch.cat(bias)
