"""A party's VAE (paper, section 5.2): full-batch Adam with a gradient written by hand.

A party trains alone, on one thread: its VAE is the same bit for bit whoever trains beside it, and
so are its prototypes. The gradient is written out because its products are small, and autograd
would take as long again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.config import VaeSettings
from fedcover.models.vae import (
    LARGEST,
    VaeWeights,
    decode,
    encode,
    initial_vae_weights,
)

Features = Any  # a scipy CSR array or a numpy array, nodes × features

Key = tuple[int, int]
"""(seed, party number): what a party's random numbers depend on."""

TINY = 1e-6  # a mean activation this near to 0 or 1 counts as that: its slope must not be infinite


@dataclass(frozen=True)
class TrainedVae:
    """A party's VAE after training."""

    weights: VaeWeights
    binary: bool
    unit: float = 1.0  # real features are divided by it on the way in, multiplied on the way out

    @torch.no_grad()
    def reconstruct(self, x: Features) -> NDArray[np.float32]:
        """Nodes × features: decoded from the mean of q(z|x), hence the same each time."""
        inputs = torch.tensor(dense(x)) / self.unit
        return self._decoded(encode(self.weights, inputs).mean)

    @torch.no_grad()
    def decode(self, z: NDArray[np.floating]) -> NDArray[np.float32]:
        """Nodes × features, for latent vectors: probabilities if the features are binary."""
        return self._decoded(torch.tensor(z, dtype=torch.float32))

    def _decoded(self, z: Tensor) -> NDArray[np.float32]:
        output = decode(self.weights, z)
        features = output.sigmoid_() if self.binary else output.mul_(self.unit)
        decoded: NDArray[np.float32] = features.numpy()
        return decoded


@torch.no_grad()
def trained_vae(x: Features, key: Key, settings: VaeSettings) -> TrainedVae:
    """The VAE of these features, the training nodes' of the party with this key."""
    binary, features = settings_binary(settings, x), dense(x)
    unit = unit_of(features, binary=binary)
    features /= unit
    start = initial_weights_of(key, features.shape[1], settings)
    start = start._replace(output_bias=marginal_output(features, binary=binary))
    # One tensor of all weights is one step of Adam. Tensors of torch's own begin at full cache
    # lines, numpy's anywhere, and products round by where they begin.
    flat = torch.cat([tensor.flatten() for tensor in start])
    flat.grad = torch.zeros_like(flat)
    weights, gradient = _views(flat, start), _views(flat.grad, start)
    adam = torch.optim.Adam([flat], lr=settings.lr, fused=True)
    inputs, generator = torch.tensor(features), noise_of(key)
    for _ in range(settings.epochs if len(features) else 0):
        noise = torch.randn(len(features), settings.latent, generator=generator)
        differentiate(weights, inputs, noise, settings, binary=binary, into=gradient)
        adam.step()
    return TrainedVae(weights, binary, unit)


def differentiate(
    weights: VaeWeights,
    x: Tensor,
    noise: Tensor,
    settings: VaeSettings,
    *,
    binary: bool,
    into: VaeWeights,
) -> None:
    """Write the gradient of the loss (:mod:`fedcover.models.vae`) ``into`` these tensors."""
    threshold_backward = torch.ops.aten.threshold_backward  # nothing flows back through a relu's 0
    share = 1 / len(x)
    hidden = torch.addmm(weights.encoder_bias, x, weights.encoder).relu_()
    both = torch.addmm(weights.posterior_bias, hidden, weights.posterior)
    mean, log_variance = both.chunk(2, dim=1)
    deviation = (0.5 * log_variance.clamp(-LARGEST, LARGEST)).exp_()
    z = mean + deviation * noise
    decoded = torch.addmm(weights.decoder_bias, z, weights.decoder).relu_()
    output = torch.addmm(weights.output_bias, decoded, weights.output)

    # Both reconstruction losses have the gradient (reconstruction − x) at the output.
    error = output.sigmoid_() if binary else output
    error.sub_(x).mul_(settings.lambda_rec * share)
    _linear(decoded, error, into.output, into.output_bias)
    at_decoded = threshold_backward(error @ weights.output.T, decoded, 0.0)
    _linear(z, at_decoded, into.decoder, into.decoder_bias)
    at_z = at_decoded @ weights.decoder.T

    active, kl = mean.sigmoid(), settings.lambda_kl * share
    rate = active.mean(dim=0).clamp(TINY, 1 - TINY)
    sparse = settings.beta * share * ((1 - settings.rho) / (1 - rate) - settings.rho / rate)
    at_mean = at_z + kl * mean + sparse * active * (1 - active)
    at_variance = 0.5 * (at_z * noise * deviation + kl * (deviation.square() - 1))
    at_variance *= log_variance.abs() <= LARGEST
    at_both = torch.cat([at_mean, at_variance], dim=1)
    _linear(hidden, at_both, into.posterior, into.posterior_bias)
    at_hidden = threshold_backward(at_both @ weights.posterior.T, hidden, 0.0)
    _linear(x, at_hidden, into.encoder, into.encoder_bias)


def _linear(x: Tensor, error: Tensor, matrix: Tensor, bias: Tensor) -> None:
    """The gradients of a layer's matrix and bias, from its inputs and its outputs' gradient."""
    torch.mm(x.T, error, out=matrix)
    torch.sum(error, dim=0, keepdim=True, out=bias)


def _views(flat: Tensor, like: VaeWeights) -> VaeWeights:
    """The pieces of one tensor, in the shapes of these weights."""
    pieces = torch.split(flat, [tensor.numel() for tensor in like])
    return VaeWeights(*(p.view(t.shape) for p, t in zip(pieces, like, strict=True)))


def settings_binary(settings: VaeSettings, x: Features) -> bool:
    """Whether features are 0 or 1, by the settings or else by looking at the training nodes'."""
    return is_binary(x) if settings.binary is None else settings.binary


def is_binary(x: Features) -> bool:
    """Whether all features are 0 or 1."""
    values = x.data if sp.issparse(x) else x
    return bool(((values == 0) | (values == 1)).all())


def dense(x: Features) -> NDArray[np.float32]:
    """As a float32 array of its own."""
    return np.array(x.toarray() if sp.issparse(x) else x, dtype=np.float32)


def initial_weights_of(key: Key, features: int, settings: VaeSettings) -> VaeWeights:
    """Where a party's training starts, up to the output's bias."""
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
