r"""Two-layer GCN and GraphSAGE, written as propagation matrices and weights.

Both models are

.. math::
    Z = \sum_o P_o \, \mathrm{relu}\Big(\sum_o P_o X W^{(1)}_o + b^{(1)}\Big) W^{(2)}_o + b^{(2)}

with one matrix :math:`P = \tilde D^{-1/2}(A+I)\tilde D^{-1/2}` for GCN (Kipf & Welling, 2017)
and two, the mean over neighbours :math:`D^{-1}A` and the identity, for GraphSAGE (Hamilton et
al., 2017).
Dropout acts on the hidden layer, as in PyG's ``GCN`` and ``GraphSAGE`` models, which
:func:`to_module` returns with the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass(frozen=True)
class Weights:
    """One model's parameters; for ``o`` propagation matrices the parts are stacked by rows."""

    first: Tensor  # (o·F, hidden)
    first_bias: Tensor  # (hidden,)
    second: Tensor  # (o·hidden, classes)
    second_bias: Tensor  # (classes,)

    def to(self, dtype: torch.dtype) -> Weights:
        """The same in another precision."""
        return Weights(*(t.to(dtype) for t in self.tensors()))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four tensors in a fixed order: what travels between a client and the server."""
        return self.first, self.first_bias, self.second, self.second_bias

    @property
    def weights(self) -> Weights:
        """Themselves."""
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of one message that carries the weights."""
        return sum(t.numel() * t.element_size() for t in self.tensors())


def operators(model: str) -> int:
    """How many propagation matrices the model has."""
    return {"gcn": 1, "sage": 2}[model]


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
    if model == "gcn":
        looped = (adjacency + identity).tocsr()
        scale = 1.0 / np.sqrt(np.asarray(looped.sum(axis=1)).ravel())
        looped.data *= np.repeat(scale, np.diff(looped.indptr))
        looped.data *= scale[looped.indices]
        return [looped]
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

    count = operators(model)
    first = np.concatenate([glorot(features, hidden) for _ in range(count)])
    second = np.concatenate([glorot(hidden, classes) for _ in range(count)])
    return Weights(
        torch.from_numpy(first),
        torch.zeros(hidden),
        torch.from_numpy(second),
        torch.zeros(classes),
    )


def to_module(model: str, weights: Weights, dropout: float = 0.0) -> nn.Module:
    """PyG's own model holding copies of these weights (see also :func:`from_module`)."""
    from torch_geometric.nn import GCN, GraphSAGE

    count = operators(model)
    features, hidden = weights.first.shape[0] // count, weights.first.shape[1]
    kind = GCN if model == "gcn" else GraphSAGE
    module: nn.Module = kind(
        features, hidden, num_layers=2, out_channels=weights.second.shape[1], dropout=dropout
    )
    module = module.to(weights.first.dtype)
    load_weights(model, module, weights)
    return module


def _matrices(model: str) -> tuple[list[str], str]:
    """Names inside one PyG convolution: its matrices in our order, and its bias."""
    return (
        (["lin.weight"], "bias")
        if model == "gcn"
        else (
            ["lin_l.weight", "lin_r.weight"],
            "lin_l.bias",
        )
    )


def load_weights(model: str, module: nn.Module, weights: Weights) -> None:
    """Copy the weights into a module made by :func:`to_module`."""
    names, bias_name = _matrices(model)
    state: dict[str, Tensor] = {}
    for layer, (matrix, bias) in enumerate(
        [(weights.first, weights.first_bias), (weights.second, weights.second_bias)]
    ):
        for name, part in zip(names, matrix.chunk(len(names)), strict=True):
            state[f"convs.{layer}.{name}"] = part.T
        state[f"convs.{layer}.{bias_name}"] = bias
    module.load_state_dict(state)


def from_module(model: str, module: nn.Module) -> Weights:
    """The weights of a module made by :func:`to_module`, detached and copied."""
    names, bias_name = _matrices(model)
    state = module.state_dict()
    matrices = [
        torch.cat([state[f"convs.{layer}.{name}"].T for name in names]).clone() for layer in (0, 1)
    ]
    biases = [state[f"convs.{layer}.{bias_name}"].clone() for layer in (0, 1)]
    return Weights(matrices[0], biases[0], matrices[1], biases[1])
