"""The VAE's loss as the paper's appendix writes it, for autograd: the oracle of the gradient."""

import torch
from torch import Tensor

from fedcover.config import VaeSettings
from fedcover.models.vae import Posterior, kl_to_prior, recon_loss, sparsity_of_logit


def sparsity(activation: Tensor, rho: float) -> Tensor:
    """KL(ρ‖·) of mean activations, summed; flat where they reach 0 or 1."""
    return sparsity_of_logit(activation.logit(eps=1e-6), rho)


def vae_loss(
    output: Tensor, x: Tensor, posterior: Posterior, settings: VaeSettings, *, binary: bool
) -> Tensor:
    """The weighted total over one party's nodes; the activations are the latent means' sigmoids."""
    activation = torch.sigmoid(posterior.mean).mean(dim=0)
    return (
        settings.lambda_rec * recon_loss(output, x, binary=binary).mean()
        + settings.lambda_kl * kl_to_prior(*posterior).mean()
        + settings.beta * sparsity(activation, settings.rho)
    )
