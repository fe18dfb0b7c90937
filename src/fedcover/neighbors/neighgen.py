r"""NeighGen's parts above its encoder (Zhang et al., NeurIPS 2021, section 4.1), for all clients.

From a node's embedding :math:`z_v` the degree predictor dGen says how many neighbours are missing,
:math:`\tilde n_v = \mathrm{relu}(w^\top z_v + b)`, and the feature generator fGen what they look
like: each generated neighbour is one draw of :math:`\mathrm{fGen}(z_v + \epsilon)` with
:math:`\epsilon \sim N(0, I)` and one hidden layer. Every tensor has the clients in front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcover.errors import UsageError

TARGETS = ("means", "nodes")


@dataclass(frozen=True, kw_only=True)
class NeighGenSettings:
    """Sizes, weights of the losses, and the rhythm of training and exchange.

    ``hidden_share`` of a client's nodes are hidden; a node gets at most ``most`` neighbours.
    ``batch`` is the number of generated vectors in a client's feature loss at each step. Clients
    train alone for ``warm_up`` epochs, then ``rounds`` times exchange and train ``local_epochs``.
    ``groups`` bounds a client's latent means, ``target_groups`` the feature means that it answers
    with; none stands for fewer than ``min_group`` nodes. ``targets="nodes"`` answers with single
    nodes, at most ``target_nodes``, as the original does, and lets them leak (docs/fedsage.md).
    """

    hidden_share: float = 0.5
    most: int = 5
    latent: int = 64
    hidden: int = 64
    lr: float = 0.01
    batch: int = 64
    warm_up: int = 20
    rounds: int = 10
    local_epochs: int = 5
    degree_weight: float = 1.0
    feature_weight: float = 1.0
    cross_weight: float = 1.0
    groups: int = 10
    min_group: int = 5
    targets: str = "means"
    target_groups: int = 20
    target_nodes: int = 200

    def __post_init__(self) -> None:
        at_least = {"warm_up": 0, "rounds": 0, "min_group": 2}
        counts = ("most", "latent", "hidden", "batch", "warm_up", "rounds", "local_epochs")
        for name in (*counts, "groups", "min_group", "target_groups", "target_nodes"):
            value, least = getattr(self, name), at_least.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} is {value!r}, but must be an integer of {least} or more.")
        if not (_is_number(self.hidden_share) and 0 < self.hidden_share < 1):
            raise UsageError(
                f"hidden_share is {self.hidden_share!r}, but must lie strictly between 0 and 1."
            )
        if not (_is_number(self.lr) and self.lr > 0):
            raise UsageError(f"lr is {self.lr!r}, but must be a positive number.")
        for name in ("degree_weight", "feature_weight", "cross_weight"):
            value = getattr(self, name)
            if not (_is_number(value) and value >= 0):
                raise UsageError(f"{name} is {value!r}, but must be a number of 0 or more.")
        if self.targets not in TARGETS:
            raise UsageError(
                f"targets is {self.targets!r}, but must be one of {', '.join(TARGETS)}."
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
