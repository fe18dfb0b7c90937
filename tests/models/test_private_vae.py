"""Private training: nothing but clipped gradients may depend on the data."""

import numpy as np
import pytest
import torch

from fedcover.config import Privacy, VaeSettings
from fedcover.errors import DataError
from fedcover.models import vae as module
from fedcover.models.vae import (
    VAE,
    Posterior,
    VaeWeights,
    check_size,
    noise_note,
    prior_samples,
    private_loss,
    public_start,
    trained_private_vae,
)

from .written_loss import vae_loss

SETTINGS = VaeSettings(hidden=8, latent=3, binary=True)
FEATURES = 25


def features(nodes: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.random((nodes, FEATURES)) < 0.3).astype(np.float32)


def moved(x: np.ndarray, privacy: Privacy, key=(0, 0)) -> torch.Tensor:
    """All weights' way from the start, in one vector."""
    start = public_start(key, x.shape[1], SETTINGS, privacy, binary=True)
    end = trained_private_vae(x, key, SETTINGS, privacy).weights
    return torch.cat([(e - s).ravel() for e, s in zip(end, start, strict=True)])


@pytest.fixture
def noisy(monkeypatch) -> Privacy:
    """A fixed noise multiplier, and no accountant's time."""
    monkeypatch.setattr(module, "noise_multiplier", lambda _: 1.5)
    return Privacy(epsilon=5, steps=3)


class Recorder(torch.optim.SGD):
    """Takes Adam's place and moves by the plain gradient, so that the noise is seen as it is."""

    def __init__(self, parameters, lr, fused):
        super().__init__(parameters, lr=1.0)


@pytest.mark.parametrize("nodes", [1, 7, 8, 300])
def test_the_noise_does_not_know_how_many_nodes_there_are(noisy, monkeypatch, nodes):
    # With losses of zero gradient the weights move by the noise alone: σ·C in each step, of the
    # same draws, so the same numbers for every n. Dividing by ⌊q·n⌋ (Opacus issue 819) fails.
    monkeypatch.setattr(torch.optim, "Adam", Recorder)
    monkeypatch.setattr(
        module, "private_loss", lambda output, x, *rest, **kw: 0.0 * output.sum(dim=1)
    )
    way, empty = moved(features(nodes), noisy), moved(features(0), noisy)
    torch.testing.assert_close(way, empty, rtol=1e-4, atol=1e-4)
    assert float(way.std()) == pytest.approx(1.5 * np.sqrt(noisy.steps), rel=0.1)


def test_one_node_moves_a_step_by_no_more_than_the_clipping_norm(noisy, monkeypatch):
    # One node more leaves the others' draws alone only without sampling noise: take all, one step.
    monkeypatch.setattr(torch.optim, "Adam", Recorder)
    monkeypatch.setattr(torch, "rand", lambda n, generator: torch.zeros(n))
    monkeypatch.setattr(torch, "randn", lambda *shape, generator: torch.zeros(shape))
    privacy = Privacy(epsilon=5, steps=1, max_grad_norm=0.7)
    x = features(9)
    ways = []
    for value in (1.0, 0.0, 1e30, np.nan):
        more = np.concatenate([x, np.full((1, FEATURES), value, np.float32)])
        ways.append(float((moved(more, privacy) - moved(x, privacy)).norm()))
    assert max(ways) <= 0.7 + 1e-3
    assert ways[0] > 0.69  # its gradient is longer than the bound


def test_the_clipped_sum_is_that_of_single_gradients(noisy, monkeypatch):
    monkeypatch.setattr(torch.optim, "Adam", Recorder)
    monkeypatch.setattr(module, "noise_multiplier", lambda _: 0.0)
    monkeypatch.setattr(torch, "rand", lambda n, generator: torch.zeros(n))
    monkeypatch.setattr(torch, "randn", lambda *shape, generator: torch.full(shape, 0.3))
    privacy = Privacy(epsilon=5, steps=1, max_grad_norm=2.0)
    x = features(6)
    expected = torch.zeros(())
    for row in torch.from_numpy(x):
        vae = VAE(public_start((0, 0), FEATURES, SETTINGS, privacy, binary=True))
        output, posterior = vae(row[None], torch.full((1, 3), 0.3))
        private_loss(output, row[None], posterior, SETTINGS, binary=True).sum().backward()
        layers = (vae.encoder, vae.posterior, vae.decoder, vae.output)
        gradient = torch.cat(
            [t.ravel() for layer in layers for t in (layer.weight.grad.T, layer.bias.grad)]
        )
        expected = expected - gradient * min(1.0, 2.0 / float(gradient.norm()))
    torch.testing.assert_close(moved(x, privacy), expected, rtol=1e-3, atol=1e-4)


def test_batches_without_a_node_are_steps_too(noisy):
    way = moved(features(2), Privacy(epsilon=5, steps=40, sample_rate=0.01))
    assert torch.isfinite(way).all()
    assert float(way.abs().max()) > 0


def test_noise_repeats_with_its_key_alone(noisy):
    x = features(12)
    assert torch.equal(moved(x, noisy), moved(x, noisy))
    assert not torch.equal(moved(x, noisy), moved(x, noisy, key=(0, 1)))


def test_the_start_is_public(noisy):
    start = public_start((0, 0), FEATURES, SETTINGS, noisy, binary=True)
    np.testing.assert_allclose(start.output_bias.sigmoid().numpy(), noisy.density, rtol=1e-5)
    assert isinstance(start, VaeWeights)


def test_the_nodes_own_losses_bound_the_papers():
    rng = np.random.default_rng(4)
    output, x = (torch.from_numpy(rng.random((9, 5), dtype=np.float32)) for _ in range(2))
    mean = torch.from_numpy(rng.normal(0, 2, (9, 3)).astype(np.float32))
    posterior = Posterior(mean, torch.zeros(9, 3))
    settings = VaeSettings(beta=2.0, rho=0.2)
    own = private_loss(output, x, posterior, settings, binary=False).mean()
    paper = vae_loss(output, x, posterior, settings, binary=False)
    assert own > paper
    same = Posterior(mean[:1].expand(9, 3), torch.zeros(9, 3))
    torch.testing.assert_close(
        private_loss(output, x, same, settings, binary=False).mean(),
        vae_loss(output, x, same, settings, binary=False),
    )


def test_prior_samples_depend_on_weights_and_key_alone(noisy):
    vae = trained_private_vae(features(12), (0, 0), SETTINGS, noisy)
    one, two = (prior_samples(vae, (0, 0), SETTINGS, noisy) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert one.shape == (500, FEATURES)


def test_a_client_that_cannot_show_through_the_noise_is_refused(monkeypatch):
    monkeypatch.setattr(module, "noise_multiplier", lambda _: 13.5)  # ε = 1 at the defaults
    privacy = Privacy(epsilon=1)
    check_size(4, 7, privacy)  # 13.5 / (0.25·√200) = 3.8
    with pytest.raises(DataError, match=r"Client 7 has 3 training nodes.*epsilon 1,.*4 or more"):
        check_size(3, 7, privacy)


def test_a_note_says_where_noise_outweighs_the_data(monkeypatch):
    monkeypatch.setattr(module, "noise_multiplier", lambda _: 2.0)
    privacy = Privacy(epsilon=8, steps=16, sample_rate=0.5)  # q√T/σ = 1, so n against √weights
    start = public_start((0, 0), FEATURES, SETTINGS, privacy, binary=True)
    weights = sum(t.numel() for t in start)  # 519, whose root is 22.8
    few, many = int(weights**0.5), int(weights**0.5) + 1
    note = noise_note([few, many], FEATURES, SETTINGS, privacy)
    assert note.startswith(f"epsilon 8: at 1 of 2 clients the noise on the VAE's {weights} weights")
    assert noise_note([many], FEATURES, SETTINGS, privacy) is None
