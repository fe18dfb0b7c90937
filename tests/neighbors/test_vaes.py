"""All clients at once against each alone, and against torch's own Adam on plain layers."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fedcover.federation import Client
from fedcover.neighbors import vaes

from fedcover.config import VaeSettings
from fedcover.errors import UsageError
from fedcover.models.vae import VAE, vae_loss
from fedcover.models.vaes import (
    initial_weights_of,
    marginal_output,
    noise_of,
    trained_vaes,
    training_features,
    unit_of,
)

SETTINGS = VaeSettings(hidden=9, latent=4, epochs=12, lr=0.02)


def make_client(rng: np.random.Generator, train: int, *, binary: bool, sparse: bool) -> Client:
    x = (rng.random((train + 4, 30)) < 0.3).astype(np.float32)
    if not binary:
        x *= rng.normal(3, 2, x.shape).astype(np.float32)
    order = rng.permutation(train + 4)
    features = sp.csr_array(x) if sparse else x
    return Client(features, np.zeros((2, 0), np.int64), order % 2, order[:train], order[train:])


@pytest.fixture(params=[True, False], ids=["binary", "real"])
def clients(request) -> list[Client]:
    rng = np.random.default_rng(3)
    sizes = [7, 40, 1, 12, 90, 0, 23]
    return [
        make_client(rng, n, binary=request.param, sparse=bool(i % 2)) for i, n in enumerate(sizes)
    ]


def train_all(clients, keys, settings):
    by_place = dict(trained_vaes(clients, keys, settings))
    return [by_place[i] for i in range(len(clients))]


KEYS = [(5, 0), (5, 1), (5, 2), (5, 3), (6, 0), (6, 1), (6, 2)]


def plain_training(client: Client, key: tuple[int, int], *, binary: bool) -> torch.nn.Module:
    """One client with layers, autograd through the written loss, and torch's unfused Adam."""
    x = training_features(client)
    x = np.array(x.toarray() if sp.issparse(x) else x)
    x /= unit_of(x, binary=binary)
    start = initial_weights_of(key, x.shape[1], SETTINGS)
    module = VAE(start._replace(output_bias=marginal_output(x, binary=binary)))
    adam = torch.optim.Adam(module.parameters(), lr=SETTINGS.lr)
    generator, features = noise_of(key), torch.from_numpy(x)
    for _ in range(SETTINGS.epochs):
        noise = torch.randn(len(x), SETTINGS.latent, generator=generator)
        output, posterior = module(features, noise)
        adam.zero_grad()
        vae_loss(output, features, posterior, SETTINGS, binary=binary).backward()
        adam.step()
    return module


def test_the_stack_is_plain_training_of_each_client(clients):
    trained = train_all(clients, KEYS, SETTINGS)
    for i in (0, 1, 3, 4, 6):
        oracle = plain_training(clients[i], KEYS[i], binary=trained[i].binary).weights()
        for ours, theirs in zip(trained[i].weights, oracle, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-4)
        start = initial_weights_of(KEYS[i], 30, SETTINGS)
        assert (trained[i].weights.encoder - start.encoder).abs().max() > 0.05


def test_a_client_does_not_depend_on_its_company(clients, monkeypatch):
    together = train_all(clients, KEYS, SETTINGS)
    for i, client in enumerate(clients):
        (alone,) = train_all([client], [KEYS[i]], SETTINGS)
        for ours, theirs in zip(together[i].weights, alone.weights, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-4)
    monkeypatch.setattr(vaes, "BLOCK_WEIGHTS", 1)  # one client a block
    apart = train_all(clients, KEYS, SETTINGS)
    np.testing.assert_allclose(
        apart[1].reconstruct(clients[1].x), together[1].reconstruct(clients[1].x), atol=1e-3
    )


def test_only_training_nodes_are_seen(clients):
    changed = []
    for client in clients:
        x = client.x.toarray() if sp.issparse(client.x) else client.x.copy()
        x[client.valid] = 77.0
        changed.append(Client(x, client.edge_index, client.y, client.train, client.valid))
    before, after = train_all(clients, KEYS, SETTINGS), train_all(changed, KEYS, SETTINGS)
    for ours, theirs in zip(before, after, strict=True):
        assert torch.equal(ours.weights.output, theirs.weights.output)


def test_the_key_is_the_randomness(clients):
    once, again = (train_all(clients[:1], [(1, 2)], SETTINGS)[0] for _ in range(2))
    other = train_all(clients[:1], [(2, 1)], SETTINGS)[0]
    assert torch.equal(once.weights.output, again.weights.output)
    assert not torch.equal(once.weights.output, other.weights.output)


def test_binary_and_real_clients_may_stand_together():
    rng = np.random.default_rng(0)
    mixed = [make_client(rng, 20, binary=bool(i % 2), sparse=False) for i in range(4)]
    trained = train_all(mixed, KEYS[:4], SETTINGS)
    assert [vae.binary for vae in trained] == [False, True, False, True]
    probabilities = trained[1].decode(rng.normal(size=(50, SETTINGS.latent)))
    assert probabilities.dtype == np.float32
    assert 0 < probabilities.min() < probabilities.max() < 1


def test_real_features_may_have_any_unit():
    rng = np.random.default_rng(1)
    client = make_client(rng, 40, binary=False, sparse=False)
    scaled = Client(client.x * 1024, client.edge_index, client.y, client.train, client.valid)
    one, two = (train_all([c], [(0, 0)], SETTINGS)[0] for c in (client, scaled))
    np.testing.assert_allclose(
        one.reconstruct(client.x) * 1024, two.reconstruct(scaled.x), rtol=1e-3, atol=1.0
    )


def test_every_client_needs_a_key(clients):
    with pytest.raises(UsageError, match="6 keys"):
        train_all(clients, KEYS[:-1], SETTINGS)
