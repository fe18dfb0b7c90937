"""Every client's VAE (paper, section 5.2), the clients of all seeds trained as one program.

Clients of about equal size form a block: one padded batch, one tensor for each layer's weights,
one fused Adam. Blocks are small enough for weights and optimiser state to stay in the processor's
cache through all epochs, which is where the time goes otherwise. A client's result does not
depend on its neighbours in the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.errors import UsageError
from fedcover.federation import PartyGraph
from fedcover.models.vae import (
    VaeSettings,
    VaeWeights,
    decode,
    encode,
    initial_vae_weights,
    kl_to_prior,
    sparsity,
)
from fedcover.training.layout import Layout
from fedcover.training.plan import Features

Key = tuple[int, int]
"""(seed, client number): what a client's random numbers depend on."""

BLOCK_WEIGHTS = 2_000_000  # weights in a block; Adam keeps four numbers for each


@dataclass(frozen=True)
class TrainedVae:
    """A client's VAE after training."""

    weights: VaeWeights
    binary: bool
    unit: float = 1.0  # real features are divided by it on the way in, multiplied on the way out

    @torch.no_grad()
    def reconstruct(self, x: Features) -> NDArray[np.float32]:
        """Nodes × features: decoded from the mean of q(z|x), hence the same each time."""
        inputs = torch.from_numpy(dense(x)) / self.unit
        return self._decoded(encode(self.weights, inputs).mean)

    @torch.no_grad()
    def decode(self, z: NDArray[np.floating]) -> NDArray[np.float32]:
        """Nodes × features, for latent vectors: probabilities if the features are binary."""
        return self._decoded(torch.from_numpy(np.asarray(z, dtype=np.float32)))

    def _decoded(self, z: Tensor) -> NDArray[np.float32]:
        output = decode(self.weights, z)
        features = output.sigmoid_() if self.binary else output.mul_(self.unit)
        decoded: NDArray[np.float32] = features.numpy()
        return decoded


def trained_vaes(
    clients: Sequence[PartyGraph], keys: Sequence[Key], settings: VaeSettings
) -> Iterator[tuple[int, TrainedVae]]:
    """One VAE for each client, on its training nodes alone, as (position in ``clients``, VAE).

    ``keys[i]`` is client i's. They come block after block: few are held at once.
    """
    if len(keys) != len(clients):
        raise UsageError(f"There are {len(keys)} keys, but must be one for each client.")
    binary = [settings_binary(settings, client) for client in clients]
    for kind in (True, False):
        members = [i for i in range(len(clients)) if binary[i] == kind]
        members.sort(key=lambda i: -len(clients[i].train))
        for block in _blocks([len(clients[i].train) for i in members], clients, settings):
            of = members[block]
            yield from zip(
                of,
                _train([clients[i] for i in of], [keys[i] for i in of], settings, binary=kind),
                strict=True,
            )


def training_features(client: PartyGraph) -> Features:
    """The only features that a VAE ever sees."""
    return client.x[np.sort(client.train)]


def settings_binary(settings: VaeSettings, client: PartyGraph) -> bool:
    """Whether the client's features are 0 or 1, by the settings or else by the training nodes."""
    if settings.binary is not None:
        return settings.binary
    return is_binary(training_features(client))


def is_binary(x: Features) -> bool:
    """Whether all features are 0 or 1."""
    values = x.data if sp.issparse(x) else x
    return bool(((values == 0) | (values == 1)).all())


def dense(x: Features) -> NDArray[np.float32]:
    """As a float32 array of its own."""
    return np.array(x.toarray() if sp.issparse(x) else x, dtype=np.float32)


def initial_weights_of(key: Key, features: int, settings: VaeSettings) -> VaeWeights:
    """Where a client's training starts, up to the output's bias."""
    return initial_vae_weights(features, settings, np.random.default_rng([*key, 0x7AE0]))


def noise_of(key: Key) -> torch.Generator:
    """Each epoch takes (training nodes × latent) normal numbers from it."""
    seed = np.random.default_rng([*key, 0x7AE1]).integers(2**63)
    return torch.Generator().manual_seed(int(seed))


def marginal_output(x: NDArray[np.float32], *, binary: bool) -> Tensor:
    """The output's bias that reconstructs each feature's mean: where the output starts.

    Frequencies are smoothed with one node of the overall density, so that none is 0 or 1. Without
    this start, most epochs on a sparse bag of words go into learning that words are rare.
    """
    if not len(x):
        return torch.zeros(1, x.shape[1])
    if not binary:
        return torch.from_numpy(x.mean(axis=0, keepdims=True))
    density = min(max(float(x.mean()), 1e-3), 1 - 1e-3)
    return torch.from_numpy((x.sum(axis=0, keepdims=True) + density) / (len(x) + 1)).logit()


def unit_of(x: NDArray[np.float32], *, binary: bool) -> float:
    """The root of the features' mean variance, in which a real VAE's unit variance is measured."""
    variance = 0.0 if binary or not len(x) else float(x.var(axis=0, dtype=np.float64).mean())
    return variance**0.5 or 1.0


def _blocks(
    sizes: Sequence[int], clients: Sequence[PartyGraph], settings: VaeSettings
) -> Iterator[slice]:
    """Neighbours of similar size, as many as stay in the cache."""
    if not sizes:
        return
    features = clients[0].x.shape[1]
    most = max(1, BLOCK_WEIGHTS // (2 * settings.hidden * (features + settings.latent)))
    for block in Layout(np.array(sizes)).blocks:
        for start in range(block.start, block.stop, most):
            yield slice(start, min(start + most, block.stop))


def _train(
    clients: Sequence[PartyGraph], keys: Sequence[Key], settings: VaeSettings, *, binary: bool
) -> list[TrainedVae]:
    """Train one block of clients for all epochs."""
    sizes = [len(client.train) for client in clients]
    features = clients[0].x.shape[1]
    x = torch.zeros(len(clients), max(*sizes, 1), features)
    share = torch.zeros(len(clients), x.shape[1], 1)  # 1/n for a client's nodes, 0 for padding
    starts, units = [], []
    for k, (client, key) in enumerate(zip(clients, keys, strict=True)):
        mine = dense(training_features(client))
        unit = unit_of(mine, binary=binary)
        mine /= unit
        x[k, : sizes[k]] = torch.from_numpy(mine)
        share[k, : sizes[k]] = 1 / max(sizes[k], 1)
        start = initial_weights_of(key, features, settings)
        starts.append(start._replace(output_bias=marginal_output(mine, binary=binary)))
        units.append(unit)
    weights = VaeWeights(
        *(torch.stack(tensors).requires_grad_() for tensors in zip(*starts, strict=True))
    )
    del starts
    _descend(weights, x, share, sizes, [noise_of(key) for key in keys], settings, binary=binary)
    return [
        TrainedVae(VaeWeights(*(t.detach()[k] for t in weights)), binary, unit)
        for k, unit in enumerate(units)
    ]


def _descend(
    weights: VaeWeights,
    x: Tensor,
    share: Tensor,
    sizes: Sequence[int],
    noises: Sequence[torch.Generator],
    settings: VaeSettings,
    *,
    binary: bool,
) -> None:
    """Full-batch Adam on the sum of the clients' losses, which leaves each its own gradient."""
    adam = torch.optim.Adam(list(weights), lr=settings.lr, fused=True)
    noise = torch.zeros(*x.shape[:2], settings.latent)
    for _ in range(settings.epochs):
        for k, generator in enumerate(noises):
            torch.randn(sizes[k], settings.latent, generator=generator, out=noise[k, : sizes[k]])
        posterior = encode(weights, x)
        output = decode(weights, posterior.sample(noise))
        activation = (posterior.mean.sigmoid() * share).sum(dim=1)
        rest = (
            settings.lambda_kl * (kl_to_prior(*posterior) * share[..., 0]).sum()
            + settings.beta * sparsity(activation, settings.rho).sum()
        )
        # Both reconstruction losses have the gradient (reconstruction − x) at the output.
        with torch.no_grad():
            reconstruction = output.sigmoid() if binary else output.clone()
            error = reconstruction.sub_(x).mul_(settings.lambda_rec * share)
        adam.zero_grad(set_to_none=True)
        torch.autograd.backward([output, rest], [error, None])
        adam.step()
