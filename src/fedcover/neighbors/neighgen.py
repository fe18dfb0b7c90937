r"""NeighGen's parts above its encoder (Zhang et al., NeurIPS 2021, section 4.1), for all clients.

From a node's embedding :math:`z_v` the degree predictor dGen says how many neighbours are missing,
:math:`\tilde n_v = \mathrm{relu}(w^\top z_v + b)`, and the feature generator fGen what they look
like: each generated neighbour is one draw of :math:`\mathrm{fGen}(z_v + \epsilon)` with
:math:`\epsilon \sim N(0, I)` and one hidden layer. Every tensor has the clients in front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


class Generator(NamedTuple):
    """fGen: the weights that clients exchange."""

    first: Tensor  # (clients, latent, hidden)
    first_bias: Tensor  # (clients, 1, hidden)
    second: Tensor  # (clients, hidden, features)
    second_bias: Tensor  # (clients, 1, features)

    def generate(self, inputs: Tensor) -> Tensor:
        """Feature vectors (clients, rows, features) from noisy embeddings (clients, rows, latent).

        The last layer is linear; the range of the features is imposed when a graph is mended.
        """
        hidden = torch.baddbmm(self.first_bias, inputs, self.first).relu()
        return torch.baddbmm(self.second_bias, hidden, self.second)

    def of(self, client: int) -> Generator:
        """One client's generator; it still has the clients' dimension."""
        return Generator(*(tensor[client : client + 1] for tensor in self))


class Degrees(NamedTuple):
    """dGen."""

    weights: Tensor  # (clients, latent)
    bias: Tensor  # (clients,)

    def predict(self, z: Tensor, client: Tensor) -> Tensor:
        """The number of missing neighbours of each row of ``z``, given the row's client."""
        return ((z * self.weights[client]).sum(dim=1) + self.bias[client]).relu()


def initial_degrees(keys: Sequence[tuple[int, int]], latent: int, means: Tensor) -> Degrees:
    """Small weights around the clients' mean numbers of hidden neighbours.

    From there a relu cannot start dead, and the constant prediction need not be learned.
    """
    rngs = [np.random.default_rng([*key, 0xD6E1]) for key in keys]
    return Degrees(_uniform(rngs, (latent,), 1 / latent), means.clone())


def initial_generator(
    keys: Sequence[tuple[int, int]], latent: int, hidden: int, features: int
) -> Generator:
    """Glorot-uniform matrices and zero biases, from each client's (seed, number) alone."""
    rngs = [np.random.default_rng([*key, 0xF6E1]) for key in keys]
    return Generator(
        _uniform(rngs, (latent, hidden), math.sqrt(6 / (latent + hidden))),
        torch.zeros(len(rngs), 1, hidden),
        _uniform(rngs, (hidden, features), math.sqrt(6 / (hidden + features))),
        torch.zeros(len(rngs), 1, features),
    )


def _uniform(rngs: Sequence[np.random.Generator], shape: tuple[int, ...], limit: float) -> Tensor:
    drawn = np.stack([rng.uniform(-limit, limit, shape).astype(np.float32) for rng in rngs])
    return torch.from_numpy(drawn)


def degree_loss(predicted: Tensor, true: Tensor) -> Tensor:
    """Smooth L1 for each node (its paper's equation for dGen)."""
    return functional.smooth_l1_loss(predicted, true, reduction="none")


def feature_loss(generated: Tensor, nearest: Tensor) -> Tensor:
    """Squared distance of each generated vector to the real one that it was matched with."""
    return (generated - nearest).square().sum(dim=-1)
