"""The gradient written by hand against autograd, and training against torch's own Adam."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedcover.config import VaeSettings
from fedcover.models.vae import (
    NOISE,
    VAE,
    VaeWeights,
    decode,
    dense,
    differentiate,
    encode,
    generator_of,
    initial_vae_weights,
    marginal_output,
    trained_vae,
    unit_of,
)

from .written_loss import vae_loss

SETTINGS = VaeSettings(hidden=9, latent=4, epochs=12, lr=0.02)
SIZES = [7, 40, 1, 12, 90, 0, 23]
KEYS = [(5, 0), (5, 1), (5, 2), (5, 3), (6, 0), (6, 1), (6, 2)]


def draw(rng: np.random.Generator, nodes: int, *, binary: bool, sparse: bool):
    x = (rng.random((nodes, 30)) < 0.3).astype(np.float32)
    if not binary:
        x *= rng.normal(3, 2, x.shape).astype(np.float32)
    return sp.csr_array(x) if sparse else x


@pytest.fixture(params=[True, False], ids=["binary", "real"])
def parties(request) -> list:
    """Training features of unequal parties, sparse and dense."""
    rng = np.random.default_rng(3)
    return [draw(rng, n, binary=request.param, sparse=bool(i % 2)) for i, n in enumerate(SIZES)]


def plain_training(x, key: tuple[int, int], *, binary: bool) -> torch.nn.Module:
    """Layers, autograd through the written loss, and torch's unfused Adam."""
    x = dense(x)
    x /= unit_of(x, binary=binary)
    start = initial_vae_weights(key, x.shape[1], SETTINGS)
    module = VAE(start._replace(output_bias=marginal_output(x, binary=binary)))
    adam = torch.optim.Adam(module.parameters(), lr=SETTINGS.lr)
    generator, features = generator_of(key, NOISE), torch.from_numpy(x)
    for _ in range(SETTINGS.epochs):
        noise = torch.randn(len(x), SETTINGS.latent, generator=generator)
        output, posterior = module(features, noise)
        adam.zero_grad()
        vae_loss(output, features, posterior, SETTINGS, binary=binary).backward()
        adam.step()
    return module


@pytest.mark.parametrize("i", [0, 1, 2, 3, 4, 6])
def test_training_is_that_of_plain_layers(parties, i):
    trained = trained_vae(parties[i], KEYS[i], SETTINGS)
    oracle = plain_training(parties[i], KEYS[i], binary=trained.binary).weights()
    for ours, theirs in zip(trained.weights, oracle, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-4)
    start = initial_vae_weights(KEYS[i], 30, SETTINGS)
    assert (trained.weights.encoder - start.encoder).abs().max() > 0.05


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "real"])
@pytest.mark.parametrize("scale", [1.0, 40.0], ids=["small", "saturated"])
def test_the_gradient_is_autograds_in_double_precision(binary, scale):
    """Also where log-variances are cut off and activations reach 0 or 1."""
    rng, settings = np.random.default_rng(2), VaeSettings(hidden=9, latent=4, beta=0.7)
    start = initial_vae_weights(KEYS[0], 30, settings)
    weights = VaeWeights(*(tensor.double() for tensor in start))
    weights = weights._replace(posterior=weights.posterior * scale)
    x = torch.from_numpy(draw(rng, 17, binary=binary, sparse=False)).double()
    noise = torch.from_numpy(rng.normal(size=(17, 4)))
    ours = VaeWeights(*(torch.full_like(tensor, torch.nan) for tensor in weights))
    differentiate(weights, x, noise, settings, binary=binary, into=ours)
    leaves = VaeWeights(*(tensor.clone().requires_grad_() for tensor in weights))
    posterior = encode(leaves, x)
    assert (scale == 1.0) == bool((posterior.log_variance.abs() < 10).all())
    output = decode(leaves, posterior.sample(noise))
    vae_loss(output, x, posterior, settings, binary=binary).backward()
    for mine, leaf in zip(ours, leaves, strict=True):
        torch.testing.assert_close(mine, leaf.grad, rtol=1e-9, atol=1e-12)


def test_a_party_without_training_nodes_keeps_its_start(parties):
    trained = trained_vae(parties[5], KEYS[5], SETTINGS)
    assert torch.equal(trained.weights.encoder, initial_vae_weights(KEYS[5], 30, SETTINGS).encoder)


def test_sparse_and_dense_features_give_the_same_bits(parties):
    for i, x in enumerate(parties):
        same = dense(x) if sp.issparse(x) else sp.csr_array(x)
        ours, other = (trained_vae(rows, KEYS[i], SETTINGS) for rows in (x, same))
        assert all(map(torch.equal, ours.weights, other.weights))


def test_the_key_is_the_randomness(parties):
    once, again = (trained_vae(parties[0], (1, 2), SETTINGS) for _ in range(2))
    other = trained_vae(parties[0], (2, 1), SETTINGS)
    assert torch.equal(once.weights.output, again.weights.output)
    assert not torch.equal(once.weights.output, other.weights.output)


def test_whether_features_are_binary_is_seen_or_said():
    rng = np.random.default_rng(0)
    features = [draw(rng, 20, binary=bool(i % 2), sparse=False) for i in range(2)]
    trained = [trained_vae(x, (0, 0), SETTINGS) for x in features]
    assert [vae.binary for vae in trained] == [False, True]
    assert not trained_vae(features[1], (0, 0), replace(SETTINGS, binary=False)).binary
    z = torch.from_numpy(rng.normal(size=(50, SETTINGS.latent)))
    probabilities = trained[1].decode(z.float())
    assert probabilities.dtype == np.float32
    assert 0 < probabilities.min() < probabilities.max() < 1


def test_real_features_may_have_any_unit():
    x = draw(np.random.default_rng(1), 40, binary=False, sparse=False)
    one, two = (trained_vae(rows, (0, 0), SETTINGS) for rows in (x, x * 1024))
    np.testing.assert_allclose(
        one.reconstruct(x) * 1024, two.reconstruct(x * 1024), rtol=1e-3, atol=1.0
    )
