"""A client's VAE trained with DP-SGD (Opacus), and prototypes from samples of its prior.

Every quantity but the clipped gradients is public: the start (no marginal frequencies, unlike
:mod:`fedcover.models.vae`), the sampling rate, the steps, the noise; see
:mod:`fedcover.privacy`. Whether features are binary counts as public, being a property
of the columns on which all parties agree (``VaeSettings.binary``).

Not covered by ε: the GNN's and the VGAE's weights, and the number of training nodes that weights
the average (docs/privacy.md).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.config import Privacy, VaeSettings
from fedcover.errors import DataError
from fedcover.models import vae
from fedcover.models.vae import Features, Key, TrainedVae
from fedcover.privacy import noise_multiplier, require_opacus

BOUND = 100.0  # of a feature's size


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
    require_opacus()
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    # Out of bounds, a gradient could overflow, and the broken weights would betray their node.
    nodes = torch.tensor(vae.dense(x)).nan_to_num().clamp_(-BOUND, BOUND)
    binary = vae.is_binary(settings, x)
    module = vae.VAE(public_start(key, x.shape[1], settings, privacy, binary=binary))
    clipped = GradSampleModuleFastGradientClipping(
        module, loss_reduction="sum", max_grad_norm=privacy.max_grad_norm
    )
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.Adam(clipped.parameters(), lr=privacy.lr, fused=True),
        noise_multiplier=noise_multiplier(privacy),
        max_grad_norm=privacy.max_grad_norm,
        expected_batch_size=None,
        loss_reduction="sum",  # a divisor that knew the number of nodes would betray it
        generator=vae.generator_of((*key, secret), 0xD900),
    )
    draws = vae.generator_of((*key, secret), 0xD901)
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
) -> vae.VaeWeights:
    """Weights before training, the same whatever the data are."""
    start = vae.initial_vae_weights(key, features, settings)
    level = math.log(privacy.density / (1 - privacy.density)) if binary else 0.0
    return start._replace(output_bias=torch.full_like(start.output_bias, level))


def private_loss(
    output: Tensor, x: Tensor, posterior: vae.Posterior, settings: VaeSettings, *, binary: bool
) -> Tensor:
    """Each node's own loss, so that clipping bounds what one node can do.

    The paper's sparsity term is of the *mean* activation, which mixes nodes. KL(ρ‖·) is convex, so
    the mean of the nodes' own terms, an upper bound (Jensen), takes its place.
    """
    return (
        settings.lambda_rec * vae.recon_loss(output, x, binary=binary)
        + settings.lambda_kl * vae.kl_to_prior(*posterior)
        + settings.beta * vae.sparsity_of_logit(posterior.mean, settings.rho)
    )


def prior_samples(
    trained: TrainedVae, key: Key, settings: VaeSettings, privacy: Privacy
) -> NDArray[np.float32]:
    """Decoded samples of N(0, I): a function of the private weights, so they cost nothing more."""
    z = np.random.default_rng([*key, 0xD902]).standard_normal((privacy.samples, settings.latent))
    return trained.decode(torch.tensor(z, dtype=torch.float32))
