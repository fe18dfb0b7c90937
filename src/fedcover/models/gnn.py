r"""Two-layer GCN, residual GCN and GraphSAGE, written as propagation matrices and weights.

All three are

.. math::
    Z = \sum_{o \le o_2} P_o \, \mathrm{relu}\Big(\sum_{o \le o_1} P_o X W^{(1)}_o + b^{(1)}\Big)
        W^{(2)}_o + b^{(2)}

GCN (Kipf & Welling, 2017) has one matrix :math:`P = \tilde D^{-1/2}(A+I)\tilde D^{-1/2}`. The
residual GCN adds the identity in its first layer, so that a node's own features have weights of
their own beside the neighbourhood's. GraphSAGE (Hamilton et al., 2017) has two in both layers, the
mean over neighbours :math:`D^{-1}A` and the identity.
Dropout acts on the hidden layer, as in PyG's ``GCN`` and ``GraphSAGE`` models;
:func:`to_module` returns modules of PyG's layers with the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

MODELS = ("gcn", "resgcn", "sage")

_OPERATORS = {"gcn": (1, 1), "resgcn": (2, 1), "sage": (2, 2)}


@dataclass(frozen=True)
class Weights:
    """One model's parameters; those of several propagation matrices are stacked by rows."""

    first: Tensor  # (o₁·F, hidden)
    first_bias: Tensor  # (hidden,)
    second: Tensor  # (o₂·hidden, classes)
    second_bias: Tensor  # (classes,)

    def to(self, dtype: torch.dtype) -> Weights:
        """The same in another precision."""
        return Weights(*(t.to(dtype) for t in self.tensors()))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four tensors in a fixed order: what travels between a client and the server."""
        return self.first, self.first_bias, self.second, self.second_bias

    @property
    def nbytes(self) -> int:
        """Bytes of one message that carries the weights."""
        return sum(t.numel() * t.element_size() for t in self.tensors())


def operators(model: str) -> tuple[int, int]:
    """How many of the model's propagation matrices its two layers use, from the first on."""
    return _OPERATORS[model]


def propagation(
    model: str,
    edge_index: NDArray[np.int64],
    nodes: int,
    weight: NDArray[np.float64] | None = None,
) -> list[sp.csr_array]:
    """The model's propagation matrices: targets by rows, sources by columns.

    With weights, A has them in place of ones, degrees are their sums, and a mean is weighted.
    """
    source, target = edge_index
    values = np.ones(len(source)) if weight is None else weight
    adjacency = sp.csr_array((values, (target, source)), shape=(nodes, nodes))
    identity = sp.eye_array(nodes, dtype=np.float64, format="csr")
    if model != "sage":
        looped = adjacency + identity
        scale = sp.diags_array(1.0 / np.sqrt(np.asarray(looped.sum(axis=1)).ravel()))
        return [(scale @ looped @ scale).tocsr(), identity][: max(operators(model))]
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    mean = sp.diags_array(1.0 / np.where(degree > 0, degree, 1.0)) @ adjacency
    return [mean.tocsr(), identity]


def initial_weights(
    model: str, features: int, hidden: int, classes: int, rng: np.random.Generator
) -> Weights:
    """Glorot-uniform matrices and zero biases, drawn from the generator alone."""

    def glorot(rows: int, columns: int) -> NDArray[np.float32]:
        limit = np.sqrt(6.0 / (rows + columns))
        return rng.uniform(-limit, limit, (rows, columns)).astype(np.float32)

    in_first, in_second = operators(model)
    first = np.concatenate([glorot(features, hidden) for _ in range(in_first)])
    second = np.concatenate([glorot(hidden, classes) for _ in range(in_second)])
    return Weights(
        torch.from_numpy(first),
        torch.zeros(hidden),
        torch.from_numpy(second),
        torch.zeros(classes),
    )


def to_module(model: str, weights: Weights, dropout: float = 0.0) -> nn.Module:
    """A module of PyG's layers holding copies of these weights (see also :func:`from_module`)."""
    from torch_geometric.nn import GCN, GraphSAGE

    features, hidden = weights.first.shape[0] // operators(model)[0], weights.first.shape[1]
    classes = weights.second.shape[1]
    module: nn.Module
    if model == "resgcn":
        module = _residual(features, hidden, classes, dropout)
    else:
        kind = GCN if model == "gcn" else GraphSAGE
        module = kind(features, hidden, num_layers=2, out_channels=classes, dropout=dropout)
    module = module.to(weights.first.dtype)
    load_weights(model, module, weights)
    return module


def _residual(features: int, hidden: int, classes: int, dropout: float) -> nn.Module:
    from torch_geometric.nn import GCNConv

    class ResidualGCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList([GCNConv(features, hidden), GCNConv(hidden, classes)])
            self.own = nn.Linear(features, hidden, bias=False)
            self.dropout = nn.Dropout(dropout)

        def forward(
            self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
        ) -> Tensor:
            hidden = self.convs[0](x, edge_index, edge_weight) + self.own(x)
            output: Tensor = self.convs[1](self.dropout(hidden.relu()), edge_index, edge_weight)
            return output

    return ResidualGCN()


_NAMES: dict[str, list[tuple[list[str], str]]] = {
    "gcn": [([f"convs.{i}.lin.weight"], f"convs.{i}.bias") for i in (0, 1)],
    "resgcn": [
        (["convs.0.lin.weight", "own.weight"], "convs.0.bias"),
        (["convs.1.lin.weight"], "convs.1.bias"),
    ],
    "sage": [
        ([f"convs.{i}.lin_l.weight", f"convs.{i}.lin_r.weight"], f"convs.{i}.lin_l.bias")
        for i in (0, 1)
    ],
}
"""Of both layers: the modules' names for our matrices, in their order, and for the bias."""


def load_weights(model: str, module: nn.Module, weights: Weights) -> None:
    """Copy the weights into a module made by :func:`to_module`."""
    state: dict[str, Tensor] = {}
    layers = [(weights.first, weights.first_bias), (weights.second, weights.second_bias)]
    for (matrix, bias), (names, bias_name) in zip(layers, _NAMES[model], strict=True):
        for name, part in zip(names, matrix.chunk(len(names)), strict=True):
            state[name] = part.T
        state[bias_name] = bias
    module.load_state_dict(state)


def from_module(model: str, module: nn.Module) -> Weights:
    """The weights of a module made by :func:`to_module`, detached and copied."""
    state = module.state_dict()
    tensors = []
    for names, bias_name in _NAMES[model]:
        tensors += [torch.cat([state[name].T for name in names]).clone(), state[bias_name].clone()]
    return Weights(*tensors)
