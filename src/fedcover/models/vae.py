r"""A variational autoencoder of one client's node features (paper, section 5.2; Kingma & Welling).

Encoder :math:`d \to 64 \to 16`, mirrored decoder. A node's loss is the negative ELBO of the
paper's section 3; over a client's nodes it is the paper's appendix, "Sparsity Regularization":

.. math::
    \mathcal L = \lambda_{rec} \mathcal L_{rec} + \lambda_{kl} \mathcal L_{kl}
                 + \beta \mathcal L_{sparse}

with :math:`\mathcal L_{rec}` and :math:`\mathcal L_{kl}` averaged over the nodes and summed over
features and latent units. :mod:`fedcover.models.vaes` trains it,
:mod:`fedcover.models.private_vae` with differential privacy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedcover.config import VaeSettings

LARGEST = 10.0  # log-variance, up or down: further out its exponential does harm


def bernoulli_loss(logits: Tensor, x: Tensor) -> Tensor:
    r""":math:`-\sum_j x_j \log p_j + (1-x_j) \log(1-p_j)` for each node: features that are 0 or 1.

    ``logits`` are those of :math:`p`.
    """
    return nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(dim=-1)


def squared_loss(means: Tensor, x: Tensor) -> Tensor:
    r""":math:`\frac12 \sum_j (x_j - \tilde x_j)^2` for each node: real features, unit variance."""
    return 0.5 * (x - means).square().sum(dim=-1)


def kl_to_prior(mean: Tensor, log_variance: Tensor) -> Tensor:
    r""":math:`D_{KL}[q(z|x) \,\|\, N(0, I)]` for each node."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=-1)


def sparsity_of_logit(logit: Tensor, rho: float) -> Tensor:
    r""":math:`\sum_i \rho \log\frac{\rho}{\hat\rho_i}
    + (1-\rho) \log\frac{1-\rho}{1-\hat\rho_i}`, of activations :math:`\hat\rho` whose logits
    are given; finite for any logit.
    """
    softplus = nn.functional.softplus
    entropy = rho * math.log(rho) + (1 - rho) * math.log(1 - rho)
    return (entropy + rho * softplus(-logit) + (1 - rho) * softplus(logit)).sum(dim=-1)


class Posterior(NamedTuple):
    """q(z|x): independent normals, nodes × latent."""

    mean: Tensor
    log_variance: Tensor

    @classmethod
    def of(cls, both: Tensor) -> Posterior:
        """From the encoder's output; log-variances stay where their exponential does no harm."""
        mean, log_variance = both.chunk(2, dim=-1)
        return cls(mean, log_variance.clamp(-LARGEST, LARGEST))

    def sample(self, noise: Tensor) -> Tensor:
        """The reparametrisation: mean + standard deviation · noise."""
        return self.mean + (0.5 * self.log_variance).exp() * noise


class VaeWeights(NamedTuple):
    """One client's parameters, inputs × outputs."""

    encoder: Tensor  # (features, hidden)
    encoder_bias: Tensor  # (1, hidden)
    posterior: Tensor  # (hidden, 2·latent): the means, then the log-variances
    posterior_bias: Tensor
    decoder: Tensor  # (latent, hidden)
    decoder_bias: Tensor
    output: Tensor  # (hidden, features)
    output_bias: Tensor


def initial_vae_weights(
    features: int, settings: VaeSettings, rng: np.random.Generator
) -> VaeWeights:
    """Glorot-uniform matrices and zero biases."""
    sizes = [
        (features, settings.hidden),
        (settings.hidden, 2 * settings.latent),
        (settings.latent, settings.hidden),
        (settings.hidden, features),
    ]
    tensors = []
    for rows, columns in sizes:
        bound = math.sqrt(6 / (rows + columns))
        matrix = rng.random((rows, columns), dtype=np.float32) * (2 * bound) - bound
        tensors += [torch.from_numpy(matrix.astype(np.float32)), torch.zeros(1, columns)]
    return VaeWeights(*tensors)


def encode(weights: VaeWeights, x: Tensor) -> Posterior:
    """q(z|x) of one client's nodes."""
    hidden = torch.addmm(weights.encoder_bias, x, weights.encoder).relu()
    both = torch.addmm(weights.posterior_bias, hidden, weights.posterior)
    return Posterior.of(both)


def decode(weights: VaeWeights, z: Tensor) -> Tensor:
    """The decoder's linear output: logits for binary features, values for real ones."""
    hidden = torch.addmm(weights.decoder_bias, z, weights.decoder).relu()
    return torch.addmm(weights.output_bias, hidden, weights.output)


class VAE(nn.Module):
    """The same model as layers: what Opacus trains, and an oracle for tests."""

    def __init__(self, weights: VaeWeights) -> None:
        super().__init__()
        self.encoder = _linear(weights.encoder, weights.encoder_bias)
        self.posterior = _linear(weights.posterior, weights.posterior_bias)
        self.decoder = _linear(weights.decoder, weights.decoder_bias)
        self.output = _linear(weights.output, weights.output_bias)

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Posterior]:
        """The decoder's linear output at a sample of z, and q(z|x)."""
        posterior = Posterior.of(self.posterior(self.encoder(x).relu()))
        return self.output(self.decoder(posterior.sample(noise)).relu()), posterior

    def weights(self) -> VaeWeights:
        """Copies of the parameters."""
        layers = (self.encoder, self.posterior, self.decoder, self.output)
        tensors = []
        for layer in layers:
            tensors += [layer.weight.detach().T.clone(), layer.bias.detach().clone().unsqueeze(0)]
        return VaeWeights(*tensors)


def _linear(matrix: Tensor, bias: Tensor) -> nn.Linear:
    # On the meta device nothing is drawn from torch's global generator.
    layer = nn.Linear(matrix.shape[0], matrix.shape[1], device="meta")
    layer.weight = nn.Parameter(matrix.T.clone(memory_format=torch.contiguous_format))
    layer.bias = nn.Parameter(bias[0].clone())
    return layer
