"""The link-prediction loss by hand, and which pairs it looks at."""

import math

import numpy as np
import pytest
import torch

from fedcover.models.vgae import MAX_LOGSTD, MOST_PAIRS, PairSampler, Shares, link_loss, noise


def ring(nodes: int) -> np.ndarray:
    ahead = np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])
    return np.concatenate([ahead, ahead[::-1]], axis=1)


def test_the_loss_by_hand():
    """Two nodes, latent width 1: means 1 and 2, log deviations 0 and log 2, noise 1 and 0."""
    outputs = torch.tensor([[1.0, 0.0], [2.0, math.log(2.0)]], dtype=torch.float64)
    epsilon = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    linked, apart = torch.tensor([[0], [1]]), torch.tensor([[1], [1]])
    shares = Shares(torch.ones(1).double(), torch.ones(1).double(), torch.full((2,), 0.5).double())
    # z = (1 + 1·1, 2): z₀z₁ = 4, z₁z₁ = 4
    near, far = math.log(1 + math.exp(-4)), math.log(1 + math.exp(4))
    divergence = [0.5 * (1 + 1 - 1 - 0), 0.5 * (4 + 4 - 1 - 2 * math.log(2))]
    expected = near + far + sum(divergence) / 4
    assert link_loss(outputs, epsilon, linked, apart, shares).item() == pytest.approx(expected)


def test_log_deviations_are_capped_as_in_pyg():
    outputs = torch.tensor([[0.0, 50.0]])
    none = torch.empty((2, 0), dtype=torch.int64)
    shares = Shares(torch.empty(0), torch.empty(0), torch.ones(1))
    loss = link_loss(outputs, torch.zeros(1, 1), none, none, shares)
    assert loss.item() == pytest.approx(
        0.5 * (math.exp(2 * MAX_LOGSTD) - 1 - 2 * MAX_LOGSTD), rel=1e-6
    )


def test_pairs_apart_have_no_link_and_are_no_loops():
    edges = ring(7)
    known = set(zip(*edges.tolist(), strict=True))
    for step in range(50):
        linked, apart = PairSampler(edges, 7, seed=1, client=2)(step)
        np.testing.assert_array_equal(linked, edges)
        assert not known & set(zip(*apart.tolist(), strict=True))
        assert (apart[0] != apart[1]).all()
    assert apart.shape[1] > 0


def test_many_links_are_sampled():
    edges = ring(MOST_PAIRS)
    linked, apart = PairSampler(edges, MOST_PAIRS, seed=0, client=0)(0)
    assert linked.shape == (2, MOST_PAIRS)
    assert 0.9 * MOST_PAIRS < apart.shape[1] <= MOST_PAIRS


def test_a_client_without_edges_has_no_pairs():
    linked, apart = PairSampler(np.empty((2, 0), dtype=np.int64), 5, seed=0, client=0)(0)
    assert linked.shape == apart.shape == (2, 0)


def test_draws_depend_on_seed_client_and_step_alone():
    first = noise(5, 3, seed=1, client=2, step=3)
    np.testing.assert_array_equal(first, noise(5, 3, seed=1, client=2, step=3))
    for other in ({"seed": 2}, {"client": 3}, {"step": 4}):
        assert (first != noise(5, 3, **({"seed": 1, "client": 2, "step": 3} | other))).any()
