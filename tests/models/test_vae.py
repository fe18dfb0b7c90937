"""The losses against values computed by hand, and the layers against the flat functions."""

import math

import numpy as np
import pytest
import torch

from fedcover.config import VaeSettings
from fedcover.errors import UsageError
from fedcover.models.vae import (
    VAE,
    Posterior,
    decode,
    encode,
    initial_vae_weights,
    kl_to_prior,
    recon_loss,
    sparsity_of_logit,
)

from .written_loss import sparsity, vae_loss


def test_bernoulli_loss_by_hand():
    # p = 3/4 and 1/2: −log(3/4) − log(1/2) for (1, 0), −log(1/4) − log(1/2) for (0, 1).
    logits = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]])
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    expected = torch.tensor([math.log(8 / 3), math.log(8)])
    torch.testing.assert_close(recon_loss(logits, x, binary=True), expected)


def test_squared_loss_by_hand():
    means, x = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])
    torch.testing.assert_close(recon_loss(means, x, binary=False), torch.tensor([2.5]))


def test_kl_by_hand():
    mean = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    log_variance = torch.tensor([[0.0, 0.0], [0.0, math.log(4)]])
    expected = torch.tensor([0.0, 2.0 + 0.5 * (4 - 1 - math.log(4))])
    torch.testing.assert_close(kl_to_prior(mean, log_variance), expected)


def test_sparsity_by_hand():
    # ρ = 1/2 against 1/4: ½ log 2 + ½ log(2/3); against 1/2: 0.
    value = sparsity(torch.tensor([0.25, 0.5]), 0.5)
    assert float(value) == pytest.approx(0.5 * math.log(4 / 3), rel=1e-5)
    assert float(sparsity(torch.tensor([0.9]), 0.1)) == pytest.approx(
        0.1 * math.log(1 / 9) + 0.9 * math.log(9), rel=1e-5
    )


def test_sparsity_stays_finite_at_saturated_activations():
    assert torch.isfinite(sparsity(torch.tensor([0.0, 1.0]), 0.1))
    logit = torch.tensor([-300.0, 300.0], requires_grad=True)
    sparsity_of_logit(logit, 0.1).backward()
    assert torch.isfinite(logit.grad).all()


def test_the_total_weighs_its_three_terms():
    settings = VaeSettings(lambda_rec=2.0, lambda_kl=3.0, beta=5.0, rho=0.5)
    posterior = Posterior(torch.tensor([[0.0], [2.0]]), torch.zeros(2, 1))
    output, x = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0], [0.0]])
    activation = (0.5 + 1 / (1 + math.exp(-2))) / 2
    sparse = -math.log(2) - 0.5 * math.log(activation) - 0.5 * math.log(1 - activation)
    expected = 2 * (0.5 / 2) + 3 * (2 / 2) + 5 * sparse
    loss = vae_loss(output, x, posterior, settings, binary=False)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    binary = vae_loss(output, x, posterior, settings, binary=True)
    cross_entropy = (math.log(1 + math.e) + math.log(2)) / 2
    assert float(binary) == pytest.approx(expected + 2 * (cross_entropy - 0.25), rel=1e-5)


def test_layers_and_flat_functions_are_the_same_model():
    settings = VaeSettings(hidden=7, latent=3)
    rng = np.random.default_rng(0)
    weights = initial_vae_weights((0, 0), 11, settings)
    x, noise = torch.from_numpy(rng.random((5, 11), dtype=np.float32)), torch.randn(5, 3)
    output, posterior = VAE(weights)(x, noise)
    flat = encode(weights, x)
    torch.testing.assert_close(posterior.mean, flat.mean)
    torch.testing.assert_close(posterior.log_variance, flat.log_variance)
    torch.testing.assert_close(output, decode(weights, flat.sample(noise)))
    assert output.shape == (5, 11)
    for ours, theirs in zip(weights, VAE(weights).weights(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_making_a_vae_leaves_the_global_generator_alone():
    weights = initial_vae_weights((0, 0), 11, VaeSettings())
    before = torch.get_rng_state()
    VAE(weights)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", 0),
        ("latent", 1.5),
        ("epochs", True),
        ("min_cluster", 0),
        ("lr", 0.0),
        ("lambda_rec", float("nan")),
        ("lambda_kl", -1.0),
        ("beta", float("inf")),
        ("rho", 1.0),
        ("rho", 0.0),
    ],
)
def test_settings_refuse_what_cannot_be(name, value):
    shown = str(value).removesuffix(".0")
    with pytest.raises(UsageError, match=f"^{name} is {shown}; it must"):
        VaeSettings(**{name: value})
