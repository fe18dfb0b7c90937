r"""A party's VAE of its node features (paper, section 5.2; Kingma & Welling), and its training.

Encoder :math:`d \to 64 \to 16`, mirrored decoder. The loss is the paper's appendix, "Sparsity
Regularization":

.. math::
    \mathcal L = \lambda_{rec} \mathcal L_{rec} + \lambda_{kl} \mathcal L_{kl}
                 + \beta \mathcal L_{sparse}

with :math:`\mathcal L_{rec}` and :math:`\mathcal L_{kl}` averaged over the nodes and summed over
features and latent units. Training is full-batch Adam with a gradient written by hand; autograd
would take as long again. A party trains alone, on one thread, so that its VAE is the same bit for
bit whoever trains beside it.

The private training is DP-SGD (Opacus). Every quantity but the clipped gradients is public: the
start (no marginal frequencies), the sampling rate, the steps, the noise (:mod:`fedcover.privacy`),
and whether features are binary, a property of columns on which all parties agree. Not covered by ε:
the GNN's and the VGAE's weights, and the number of training nodes that weights the average
(docs/privacy.md).
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedcover.config import Privacy, VaeSettings
from fedcover.errors import DataError, require
from fedcover.privacy import noise_multiplier

Features = Any  # a scipy CSR array or a numpy array, nodes × features

Key = tuple[int, int]  # (seed, party number): what a party's random numbers depend on

NOISE = 0x7AE1  # the purpose of an epoch's draws: training nodes × latent normal numbers
LARGEST = 10.0  # log-variance, up or down: further out its exponential does harm
TINY = 1e-6  # a mean activation this near to 0 or 1 counts as that: its slope must not be infinite
BOUND = 100.0  # of a feature's size, in private training


def recon_loss(output: Tensor, x: Tensor, *, binary: bool) -> Tensor:
    r"""For each node :math:`-\sum_j x_j \log p_j + (1-x_j) \log(1-p_j)`, where the output holds the
    logits of :math:`p`; of real features :math:`\frac12 \sum_j (x_j - \tilde x_j)^2`.
    """
    if binary:
        losses = nn.functional.binary_cross_entropy_with_logits(output, x, reduction="none")
        return losses.sum(dim=-1)
    return 0.5 * (x - output).square().sum(dim=-1)


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
    def of(cls, both: Tensor) -> "Posterior":
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


def initial_vae_weights(key: Key, features: int, settings: VaeSettings) -> VaeWeights:
    """Where a party's training starts: Glorot-uniform matrices and zero biases."""
    rng = np.random.default_rng([*key, 0x7AE0])
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
        tensors += [torch.from_numpy(matrix), torch.zeros(1, columns)]
    return VaeWeights(*tensors)


def encode(weights: VaeWeights, x: Tensor) -> Posterior:
    """q(z|x) of one client's nodes."""
    hidden = torch.addmm(weights.encoder_bias, x, weights.encoder).relu()
    return Posterior.of(torch.addmm(weights.posterior_bias, hidden, weights.posterior))


def decode(weights: VaeWeights, z: Tensor) -> Tensor:
    """The decoder's linear output: logits for binary features, values for real ones."""
    hidden = torch.addmm(weights.decoder_bias, z, weights.decoder).relu()
    return torch.addmm(weights.output_bias, hidden, weights.output)


class VAE(nn.Module):
    """The same model as layers: what Opacus trains, and an oracle for tests."""

    def __init__(self, weights: VaeWeights) -> None:
        super().__init__()
        layers = (_linear(*pair) for pair in zip(weights[::2], weights[1::2], strict=True))
        self.encoder, self.posterior, self.decoder, self.output = layers

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Posterior]:
        """The decoder's linear output at a sample of z, and q(z|x)."""
        posterior = Posterior.of(self.posterior(self.encoder(x).relu()))
        return self.output(self.decoder(posterior.sample(noise)).relu()), posterior

    def weights(self) -> VaeWeights:
        """Copies of the parameters."""
        tensors = []
        for layer in (self.encoder, self.posterior, self.decoder, self.output):
            tensors += [layer.weight.detach().T.clone(), layer.bias.detach().clone().unsqueeze(0)]
        return VaeWeights(*tensors)


def _linear(matrix: Tensor, bias: Tensor) -> nn.Linear:
    # On the meta device nothing is drawn from torch's global generator.
    layer = nn.Linear(matrix.shape[0], matrix.shape[1], device="meta")
    layer.weight = nn.Parameter(matrix.T.clone(memory_format=torch.contiguous_format))
    layer.bias = nn.Parameter(bias[0].clone())
    return layer


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
        return self.decode(encode(self.weights, inputs).mean)

    @torch.no_grad()
    def decode(self, z: Tensor) -> NDArray[np.float32]:
        """Nodes × features, for latent vectors: probabilities if the features are binary."""
        output = decode(self.weights, z)
        features = output.sigmoid_() if self.binary else output.mul_(self.unit)
        decoded: NDArray[np.float32] = features.numpy()
        return decoded


@torch.no_grad()
def trained_vae(x: Features, key: Key, settings: VaeSettings) -> TrainedVae:
    """The VAE of these features, the training nodes' of the party with this key."""
    binary, features = is_binary(settings, x), dense(x)
    unit = unit_of(features, binary=binary)
    features /= unit
    start = initial_vae_weights(key, features.shape[1], settings)
    start = start._replace(output_bias=marginal_output(features, binary=binary))
    # One tensor of all weights is one step of Adam. Tensors of torch's own begin at full cache
    # lines, numpy's anywhere, and products round by where they begin.
    flat = torch.cat([tensor.flatten() for tensor in start])
    flat.grad = torch.zeros_like(flat)
    weights, gradient = _views(flat, start), _views(flat.grad, start)
    adam = torch.optim.Adam([flat], lr=settings.lr, fused=True)
    inputs, generator = torch.tensor(features), generator_of(key, NOISE)
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
    """Write the gradient of the loss ``into`` these tensors."""
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
    _layer_gradient(decoded, error, into.output, into.output_bias)
    at_decoded = threshold_backward(error @ weights.output.T, decoded, 0.0)
    _layer_gradient(z, at_decoded, into.decoder, into.decoder_bias)
    at_z = at_decoded @ weights.decoder.T

    active, kl = mean.sigmoid(), settings.lambda_kl * share
    rate = active.mean(dim=0).clamp(TINY, 1 - TINY)
    sparse = settings.beta * share * ((1 - settings.rho) / (1 - rate) - settings.rho / rate)
    at_mean = at_z + kl * mean + sparse * active * (1 - active)
    at_variance = 0.5 * (at_z * noise * deviation + kl * (deviation.square() - 1))
    at_variance *= log_variance.abs() <= LARGEST
    at_both = torch.cat([at_mean, at_variance], dim=1)
    _layer_gradient(hidden, at_both, into.posterior, into.posterior_bias)
    at_hidden = threshold_backward(at_both @ weights.posterior.T, hidden, 0.0)
    _layer_gradient(x, at_hidden, into.encoder, into.encoder_bias)


def _layer_gradient(x: Tensor, error: Tensor, matrix: Tensor, bias: Tensor) -> None:
    """The gradients of a layer's matrix and bias, from its inputs and its outputs' gradient."""
    torch.mm(x.T, error, out=matrix)
    torch.sum(error, dim=0, keepdim=True, out=bias)


def _views(flat: Tensor, like: VaeWeights) -> VaeWeights:
    """The pieces of one tensor, in the shapes of these weights."""
    pieces = torch.split(flat, [tensor.numel() for tensor in like])
    return VaeWeights(*(p.view(t.shape) for p, t in zip(pieces, like, strict=True)))


def is_binary(settings: VaeSettings, x: Features) -> bool:
    """Whether features are 0 or 1, by the settings or else by looking at the training nodes'."""
    if settings.binary is not None:
        return settings.binary
    values = x.data if sp.issparse(x) else x
    return bool(((values == 0) | (values == 1)).all())


def dense(x: Features) -> NDArray[np.float32]:
    """As a float32 array of its own."""
    return np.array(x.toarray() if sp.issparse(x) else x, dtype=np.float32)


def generator_of(key: tuple[int, ...], purpose: int) -> torch.Generator:
    """What draws a party's random numbers for one purpose."""
    seed = np.random.default_rng([*key, purpose]).integers(2**63)
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


# Private training.


def check_size(nodes: int, number: int, privacy: Privacy) -> None:
    r"""Refuse a client whose data cannot show through the noise at all.

    If all gradients pointed the same way, their sum over the training were about :math:`T q n C`,
    and the noise in that direction :math:`\sqrt T \sigma C`. The first must not be the smaller.
    """
    least = math.ceil(noise_multiplier(privacy) / (privacy.sample_rate * math.sqrt(privacy.steps)))
    if nodes < least:
        raise DataError(
            f"Client {number} has {nodes} training nodes, too few for {privacy.asked}, "
            f"which needs {least} or more to show anything but noise: take fewer clients or a "
            "larger epsilon."
        )


def noise_note(
    trained: Sequence[int], features: int, settings: VaeSettings, privacy: Privacy
) -> str | None:
    r"""A sentence for the run when there is more noise than data at some clients, else None.

    ``trained`` is how many training nodes each client has. Over all :math:`P` weights the noise is
    :math:`\sqrt{T P} \sigma C` long, the sum of the gradients at most :math:`T q n C`.
    """
    per_hidden_unit = 2 * features + 3 * settings.latent + 2
    weights = settings.hidden * per_hidden_unit + 2 * settings.latent + features
    reach = privacy.sample_rate * math.sqrt(privacy.steps)
    noise = noise_multiplier(privacy) * math.sqrt(weights)
    loud = sum(reach * nodes < noise for nodes in trained)
    if not loud:
        return None
    return (
        f"{privacy.asked}: at {loud} of {len(trained)} clients the noise on the VAE's "
        f"{weights:,} weights is longer than all gradients together can be, so that prototypes "
        "lean on the public start."
    )


def trained_private_vae(
    x: Features, key: Key, settings: VaeSettings, privacy: Privacy, secret: int = 0
) -> TrainedVae:
    """DP-SGD (Abadi et al., 2016) with Poisson sampling and Adam on the noisy sum.

    Noise and samples are drawn from the key and a ``secret`` of the party: who knows both could
    take the noise off again. A simulation, which must repeat, has none.
    """
    require("privacy", "Differential privacy")
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    # Out of bounds, a gradient could overflow, and the broken weights would betray their node.
    nodes = torch.tensor(dense(x)).nan_to_num().clamp_(-BOUND, BOUND)
    binary = is_binary(settings, x)
    module = VAE(public_start(key, x.shape[1], settings, privacy, binary=binary))
    clipped = GradSampleModuleFastGradientClipping(
        module, loss_reduction="sum", max_grad_norm=privacy.max_grad_norm
    )
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.Adam(clipped.parameters(), lr=privacy.lr, fused=True),
        noise_multiplier=noise_multiplier(privacy),
        max_grad_norm=privacy.max_grad_norm,
        expected_batch_size=None,
        loss_reduction="sum",  # a divisor that knew the number of nodes would betray it
        generator=generator_of((*key, secret), 0xD900),
    )
    draws = generator_of((*key, secret), 0xD901)
    for _ in range(privacy.steps):
        optimiser.zero_grad()
        chosen = torch.rand(len(nodes), generator=draws) < privacy.sample_rate
        batch = nodes[chosen]
        noise = torch.randn(len(batch), settings.latent, generator=draws)
        if len(batch):
            output, posterior = clipped(batch, noise)
            losses = private_loss(output, batch, posterior, settings, binary=binary)
            with warnings.catch_warnings():
                # The features need no gradient, of which torch warns for each hook of Opacus.
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                DPTensorFastGradientClipping(clipped, optimiser, losses, "sum").backward()
        else:  # the step is taken all the same: its noise hides that nobody was drawn
            for parameter in module.parameters():
                parameter.grad = torch.zeros_like(parameter)
        optimiser.step()
    return TrainedVae(module.weights(), binary)


def public_start(
    key: Key, features: int, settings: VaeSettings, privacy: Privacy, *, binary: bool
) -> VaeWeights:
    """Weights before training, the same whatever the data are."""
    start = initial_vae_weights(key, features, settings)
    level = math.log(privacy.density / (1 - privacy.density)) if binary else 0.0
    return start._replace(output_bias=torch.full_like(start.output_bias, level))


def private_loss(
    output: Tensor, x: Tensor, posterior: Posterior, settings: VaeSettings, *, binary: bool
) -> Tensor:
    """Each node's own loss, so that clipping bounds what one node can do.

    The paper's sparsity term is of the *mean* activation, which mixes nodes. KL(ρ‖·) is convex, so
    the mean of the nodes' own terms, an upper bound (Jensen), takes its place.
    """
    return (
        settings.lambda_rec * recon_loss(output, x, binary=binary)
        + settings.lambda_kl * kl_to_prior(*posterior)
        + settings.beta * sparsity_of_logit(posterior.mean, settings.rho)
    )


def prior_samples(
    trained: TrainedVae, key: Key, settings: VaeSettings, privacy: Privacy
) -> NDArray[np.float32]:
    """Decoded samples of N(0, I): a function of the private weights, so they cost nothing more."""
    z = np.random.default_rng([*key, 0xD902]).standard_normal((privacy.samples, settings.latent))
    return trained.decode(torch.tensor(z, dtype=torch.float32))
