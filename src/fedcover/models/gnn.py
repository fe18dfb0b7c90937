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

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class Weights(NamedTuple):
    """One model's parameters; for ``o`` propagation matrices the parts are stacked by rows."""

    first: Tensor  # (o·F, hidden)
    first_bias: Tensor  # (hidden,)
    second: Tensor  # (o·hidden, classes)
    second_bias: Tensor  # (classes,)

    def to(self, dtype: torch.dtype) -> "Weights":
        """The same in another precision."""
        return Weights(*(tensor.to(dtype) for tensor in self))

    def clone(self) -> "Weights":
        """A copy of its own."""
        return Weights(*(tensor.clone() for tensor in self))

    @property
    def weights(self) -> "Weights":
        """Themselves."""
        return self


WEIGHTS = Weights._fields  # what the tensors of a model are called when they travel

MODELS = {
    "gcn": (["lin.weight"], "bias"),
    "sage": (["lin_l.weight", "lin_r.weight"], "lin_l.bias"),
}
"""Of one PyG convolution: a matrix for each propagation matrix, in our order, and the bias."""


def arrays_of(weights: Weights, prefix: str = "") -> dict[str, NDArray[Any]]:
    """The four tensors as the arrays of a message."""
    return {f"{prefix}{name}": tensor.numpy() for name, tensor in weights._asdict().items()}


def weights_of(arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Weights | None:
    """The weights of a message; None if it has none."""
    if f"{prefix}{WEIGHTS[0]}" not in arrays:
        return None
    return Weights(*(torch.from_numpy(np.array(arrays[f"{prefix}{name}"])) for name in WEIGHTS))


def operators(model: str) -> int:
    """How many propagation matrices the model has."""
    return len(MODELS[model][0])


def weight_shapes(
    model: str, features: int, hidden: int, classes: int
) -> dict[str, tuple[int, ...]]:
    """Of one model, by tensor."""
    o = operators(model)
    shapes = ((o * features, hidden), (hidden,), (o * hidden, classes), (classes,))
    return dict(zip(WEIGHTS, shapes, strict=True))


def propagation(
    model: str, edge_index: NDArray[np.int64], nodes: int, weight: NDArray[np.float64] | None = None
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
    tensors = []
    for rows, columns in ((features, hidden), (hidden, classes)):
        matrix = np.concatenate([glorot(rows, columns) for _ in range(count)])
        tensors += [torch.from_numpy(matrix), torch.zeros(columns)]
    return Weights(*tensors)


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


def load_weights(model: str, module: nn.Module, weights: Weights) -> None:
    """Copy the weights into a module made by :func:`to_module`."""
    names, bias_name = MODELS[model]
    state: dict[str, Tensor] = {}
    for layer, (matrix, bias) in enumerate([weights[:2], weights[2:]]):
        for name, part in zip(names, matrix.chunk(len(names)), strict=True):
            state[f"convs.{layer}.{name}"] = part.T
        state[f"convs.{layer}.{bias_name}"] = bias
    module.load_state_dict(state)


def from_module(model: str, module: nn.Module) -> Weights:
    """The weights of a module made by :func:`to_module`, detached and copied."""
    names, bias_name = MODELS[model]
    state, tensors = module.state_dict(), []
    for layer in (0, 1):
        matrix = torch.cat([state[f"convs.{layer}.{name}"].T for name in names])
        tensors += [matrix.clone(), state[f"convs.{layer}.{bias_name}"].clone()]
    return Weights(*tensors)
