"""The mixture of models: its grid, its messages, and the weights that validation nodes choose."""

from math import comb, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from fedcover.conformal.protocol import converse
from fedcover.models.mixture import (
    TINY,
    choose_weights,
    losses,
    mixed,
    mixture_client,
    mixture_server,
    simplex,
)

NONE = np.empty((0, 3))


@st.composite
def validation(draw, least=0, models=3):
    """True-label probabilities of one client's validation nodes, nodes x models."""
    nodes = draw(st.integers(least, 12))
    return draw(arrays(np.float64, (nodes, models), elements=st.floats(1e-6, 1.0)))


def federated(clients, grid):
    """What the server returns, and every message on the way."""
    heard = []

    def listen(direction, client, kind, message):
        heard.append((direction, client, message))

    mean = converse(
        mixture_server(), mixture_client(grid), clients, kind="mixture losses", on_message=listen
    )
    return mean, heard


# The grid


@given(models=st.integers(1, 4), steps=st.integers(1, 9))
def test_the_grid_has_every_multiple_of_a_step_once(models, steps):
    grid = simplex(models, steps)
    assert grid.shape == (comb(steps + models - 1, models - 1), models)
    parts = np.rint(grid * steps).astype(int)
    np.testing.assert_allclose(grid * steps, parts, rtol=0, atol=1e-12)
    assert (parts >= 0).all()
    assert (parts.sum(axis=1) == steps).all()
    assert len({tuple(point) for point in parts}) == len(grid)


def test_the_first_point_is_the_first_model_alone():
    grid = simplex(3)
    assert grid.shape == (66, 3)  # tenths
    assert grid[0].tolist() == [1, 0, 0]
    assert grid[-1].tolist() == [0, 0, 1]
    assert simplex(2, 2).tolist() == [[1, 0], [0.5, 0.5], [0, 1]]


# Mixtures and losses


def test_one_weight_vector_mixes_all_nodes_alike():
    first = np.array([[0.8, 0.2], [0.4, 0.6]])
    second = np.array([[0.0, 1.0], [1.0, 0.0]])
    expected = [[0.6, 0.4], [0.55, 0.45]]
    np.testing.assert_allclose(mixed([first, second], np.array([0.75, 0.25])), expected)


def test_every_node_may_have_weights_of_its_own():
    first = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5]])
    second = np.array([[0.0, 1.0], [1.0, 0.0], [0.1, 0.9]])
    weights = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    expected = [[0.8, 0.2], [1.0, 0.0], [0.3, 0.7]]
    np.testing.assert_allclose(mixed([first, second], weights), expected)


@given(arrays(np.float64, (3, 5, 4), elements=st.floats(1e-3, 1.0)), st.integers(0, 65))
def test_a_mixture_of_distributions_is_one_and_lies_between_them(raw, point):
    probs = raw / raw.sum(axis=2, keepdims=True)
    mixture = mixed(list(probs), simplex(3)[point])
    np.testing.assert_allclose(mixture.sum(axis=1), 1.0)
    assert (mixture >= probs.min(axis=0) - 1e-12).all()
    assert (mixture <= probs.max(axis=0) + 1e-12).all()


def test_losses_by_hand():
    true = np.array([[0.5, 0.1], [0.25, 0.9]])
    expected = [-log(0.5) - log(0.25), -log(0.3) - log(0.575), -log(0.1) - log(0.9)]
    np.testing.assert_allclose(losses(true, simplex(2, 2)), expected)


def test_a_probability_that_underflowed_costs_much_but_not_everything():
    lost = losses(np.array([[0.0, 0.5]]), simplex(2, 1))
    np.testing.assert_allclose(lost, [-log(TINY), -log(0.5)])


# What is sent


def test_the_server_returns_the_mean_over_all_clients_nodes():
    rng = np.random.default_rng(3)
    clients = [rng.uniform(0.05, 1, size=(n, 3)) for n in (4, 0, 9)]
    grid = simplex(3)
    mean, _ = federated(clients, grid)
    np.testing.assert_allclose(mean, losses(np.concatenate(clients), grid) / 13)


def test_a_client_sends_sums_and_its_number_of_nodes_and_nothing_else():
    clients = [np.full((4, 3), 0.5), np.full((70, 3), 0.2), NONE]
    _, heard = federated(clients, simplex(3))
    assert [(way, k) for way, k, _ in heard if way == "up"] == [("up", 0), ("up", 1), ("up", 2)]
    for way, client, message in heard:
        if way == "down":
            assert message == {}
            continue
        assert {name: array.shape for name, array in message.items()} == {
            "losses": (66,),
            "n": (1,),
        }
        assert message["n"].tolist() == [len(clients[client])]


def test_without_any_validation_node_the_first_model_is_taken():
    mean, _ = federated([NONE, NONE], simplex(3))
    assert mean.tolist() == [0.0] * 66
    for shrinkage in (0.0, 100.0, inf):
        assert choose_weights(NONE, mean, simplex(3), shrinkage).tolist() == [1, 0, 0]


# The choice


def opposed():
    """A client whose second model is best among others whose first model is."""
    own, others = np.tile([0.2, 0.8], (10, 1)), np.tile([0.9, 0.1], (90, 1))
    grid = simplex(2)
    return own, federated([own, others], grid)[0], grid


def test_without_shrinkage_a_client_takes_its_own_best():
    own, mean, grid = opposed()
    assert choose_weights(own, mean, grid, 0.0).tolist() == [0, 1]


def test_infinite_shrinkage_is_the_federations_best():
    own, mean, grid = opposed()
    chosen = choose_weights(own, mean, grid, inf)
    assert chosen.tolist() == grid[mean.argmin()].tolist()
    assert chosen[0] >= 0.9
    assert choose_weights(own, mean, grid, 1e12).tolist() == chosen.tolist()


def test_a_client_without_validation_nodes_follows_the_federation():
    _, mean, grid = opposed()
    chosen = choose_weights(np.empty((0, 2)), mean, grid, 100.0)
    assert chosen.tolist() == grid[mean.argmin()].tolist()


def test_shrinkage_counts_as_so_many_nodes_of_the_federation():
    """A client's choice is that of its own nodes and ``shrinkage`` average others, counted out."""
    own, mean, grid = opposed()
    for shrinkage in (10.0, 20.0, 50.0, 200.0):
        expected = min(
            range(11),
            key=lambda g: (
                -10 * log(grid[g] @ [0.2, 0.8])
                - shrinkage * (0.1 * log(grid[g] @ [0.2, 0.8]) + 0.9 * log(grid[g] @ [0.9, 0.1]))
            ),
        )
        assert choose_weights(own, mean, grid, shrinkage).tolist() == grid[expected].tolist()


def test_between_the_two_the_weights_move_one_way():
    own, mean, grid = opposed()
    strengths = (0, 3, 6, 9, 12, 15, 20, 30, 60, 120, 1e9)
    first = [choose_weights(own, mean, grid, s)[0] for s in strengths]
    assert first == sorted(first)
    assert len(set(first)) >= 4  # it passes through points between the ends


@given(validation(), validation(least=1), st.sets(st.integers(0, 1_000), min_size=2))
def test_more_shrinkage_never_suits_the_federation_less(own, others, strengths):
    grid = simplex(3)
    mean, _ = federated([own, others], grid)
    index = {tuple(point): g for g, point in enumerate(grid)}
    chosen = [index[tuple(choose_weights(own, mean, grid, s))] for s in (*sorted(strengths), inf)]
    at_home, abroad = losses(own, grid)[chosen], mean[chosen]
    # Points are equal to a share of 1e-9 of the total loss, which strengths may multiply.
    scale = 1e-9 * 1_000 * (1 + np.abs(at_home).max() + 1_000 * np.abs(abroad).max())
    assert (np.diff(at_home) >= -scale).all()
    assert (np.diff(abroad) <= scale).all()


@given(validation(least=1), st.sampled_from([0.0, 7.0, inf]))
def test_between_two_models_that_are_the_same_the_first_is_taken(own, shrinkage):
    """Tuning that did no good leaves the shared model; rounding must not choose between them."""
    grid, twins = simplex(3), own[:, [0, 0, 1]]
    mean, _ = federated([twins], grid)
    assert choose_weights(twins, mean, grid, shrinkage)[1] == 0


@given(validation(least=1), st.permutations(range(3)))
def test_another_order_of_the_models_gives_the_same_loss(own, order):
    grid = simplex(3)
    zeros = np.zeros(len(grid))
    plain = choose_weights(own, zeros, grid, 0.0)
    other = choose_weights(own[:, order], zeros, grid, 0.0)
    best = [-np.log(own @ plain).sum(), -np.log(own[:, order] @ other).sum()]
    assert best[0] == pytest.approx(best[1], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("steps", [10, 40])
@pytest.mark.parametrize("seed", range(4))
def test_the_pooled_weights_are_the_optimum_to_the_grids_resolution(seed, steps):
    """SciPy searches the whole simplex; the loss is convex there, so it finds the minimum.

    For any weights w there is a grid point g with g_m >= c·w_m for all M models and
    c = (S − M + 1)/S: the numbers ceil(c·S·w_m) sum to at most S. Every node's mixture is then at
    least c times what w gives, so the mean loss at g exceeds that at w by at most −log c.
    """
    rng = np.random.default_rng(seed)
    clients = [rng.beta(rng.uniform(0.5, 3), 1, size=(n, 3)) + 1e-3 for n in (5, 40, 17)]
    grid, pooled = simplex(3, steps), np.concatenate(clients)
    mean, _ = federated(clients, grid)
    chosen = choose_weights(clients[0], mean, grid, inf)

    def loss(weights):
        return -np.log(pooled @ weights).mean()

    found = minimize(
        loss,
        np.full(3, 1 / 3),
        jac=lambda w: -(pooled / (pooled @ w)[:, None]).mean(axis=0),
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(3)},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert found.success
    assert loss(chosen) == pytest.approx(mean.min())
    assert found.fun <= mean.min() + 1e-9
    assert mean.min() <= found.fun - log((steps - 2) / steps)
