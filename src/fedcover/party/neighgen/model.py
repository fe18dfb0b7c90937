r"""NeighGen's parts above its encoder (FedSage+, section 4.1), for all parties of a stack.

From a node's embedding :math:`z_v` the degree predictor dGen says how many neighbours are missing,
:math:`\tilde n_v = \mathrm{relu}(w^\top z_v + b)`, and the feature generator fGen what they look
like: each generated neighbour is one draw of :math:`\mathrm{fGen}(z_v + \epsilon)` with
:math:`\epsilon \sim N(0, I)` and one hidden layer. Every tensor has the parties in front.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcover.config import NeighGenSettings
from fedcover.models.vaes import Key


class Generator(NamedTuple):
    """fGen: the weights that parties exchange."""

    first: Tensor  # (parties, latent, hidden)
    first_bias: Tensor  # (parties, 1, hidden)
    second: Tensor  # (parties, hidden, features)
    second_bias: Tensor  # (parties, 1, features)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Generator:
        """From the arrays of a message that have the tensors' names."""
        return cls(*(torch.from_numpy(np.array(arrays[name])) for name in cls._fields))

    def arrays(self, count: int) -> dict[str, NDArray[Any]]:
        """The first ``count`` parties' tensors by name, as they are now."""
        return {name: tensor[:count].numpy().copy() for name, tensor in self._asdict().items()}

    def generate(self, inputs: Tensor) -> Tensor:
        """Feature vectors (parties, rows, features) from noisy embeddings (parties, rows, latent).

        The last layer is linear; the range of the features is imposed when a graph is mended.
        """
        hidden = torch.baddbmm(self.first_bias, inputs, self.first).relu()
        return torch.baddbmm(self.second_bias, hidden, self.second)

    def of(self, place: int) -> Generator:
        """One party's generator; it still has the parties' dimension."""
        return Generator(*(tensor[place : place + 1] for tensor in self))


class Degrees(NamedTuple):
    """dGen."""

    weights: Tensor  # (parties, latent)
    bias: Tensor  # (parties,)

    def predict(self, z: Tensor, party: Tensor) -> Tensor:
        """The number of missing neighbours of each row of ``z``, given the row's party."""
        return ((z * self.weights[party]).sum(dim=1) + self.bias[party]).relu()


def generator_shapes(settings: NeighGenSettings, features: int) -> dict[str, tuple[int, int]]:
    """Of one party's fGen, by tensor."""
    latent, hidden = settings.latent, settings.hidden
    shapes = ((latent, hidden), (1, hidden), (hidden, features), (1, features))
    return dict(zip(Generator._fields, shapes, strict=True))


def initial_degrees(keys: Sequence[Key], latent: int, means: Tensor) -> Degrees:
    """Small weights around the parties' mean numbers of hidden neighbours.

    From there a relu cannot start dead, and the constant prediction need not be learned.
    """
    rngs = [np.random.default_rng([*key, 0xD6E1]) for key in keys]
    return Degrees(_uniform(rngs, (latent,), 1 / latent), means.clone())


def initial_generator(keys: Sequence[Key], settings: NeighGenSettings, features: int) -> Generator:
    """Glorot-uniform matrices and zero biases, from each party's key alone."""
    rngs = [np.random.default_rng([*key, 0xF6E1]) for key in keys]
    return Generator(
        *(
            torch.zeros(len(keys), *shape)
            if name.endswith("bias")
            else _uniform(rngs, shape, math.sqrt(6 / sum(shape)))
            for name, shape in generator_shapes(settings, features).items()
        )
    )


def _uniform(rngs: Sequence[np.random.Generator], shape: tuple[int, ...], limit: float) -> Tensor:
    drawn = np.stack([rng.uniform(-limit, limit, shape).astype(np.float32) for rng in rngs])
    return torch.from_numpy(drawn)


def degree_loss(predicted: Tensor, true: Tensor) -> Tensor:
    """Smooth L1 for each node (its paper's equation for dGen)."""
    return functional.smooth_l1_loss(predicted, true, reduction="none")
