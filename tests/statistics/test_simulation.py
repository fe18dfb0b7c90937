"""Theorem 1 in simulation: 2,000 repetitions, ten strongly shifted clients, scores drawn by numpy.

As the theorem supposes, a test node comes from client k with probability (n_k + 1)/(N + K): every
repetition tests n_k + 1 fresh nodes of each client. Clients are small, so that the band's width
K/(N + K), about 0.05, is a hundred standard errors and a rank that is off by a few shows.
"""

import numpy as np
import pytest

from fedcover.conformal import (
    calibrate,
    converse,
    coverage_band,
    exact_rank,
    mixture_band,
    order,
)

ALPHA, REPEATS, K = 0.1, 2_000, 10


def one_large_client_below(rng):
    """The lower end is attained here: q̂ falls into the large client, all others lie above it."""
    sizes = np.array([171] + [1] * 9)
    return sizes, np.arange(K) * 1.0, np.ones(K)


def equal_clients_apart(rng):
    """Close to the upper end: q̂ falls into the highest client, nine lie wholly below it."""
    return np.full(K, 19), np.arange(K) * 1.0, np.ones(K)


def overlapping(rng):
    """Unequal clients with shifts and spreads drawn anew every time; q̂ may fall anywhere."""
    return np.arange(10, 30, 2), rng.exponential(2.0, K), rng.uniform(0.2, 3.0, K)


SCENARIOS = [one_large_client_below, equal_clients_apart, overlapping]


def simulate(scenario, rule, seed=0):
    """Mean coverage over the repetitions, its standard error, and the band."""
    rng = np.random.default_rng(seed)
    coverages = []
    for _ in range(REPEATS):
        sizes, shifts, spreads = scenario(rng)
        clients = list(zip(sizes, shifts, spreads, strict=True))
        calibration = [shift + spread * rng.random(n) for n, shift, spread in clients]
        test = [shift + spread * rng.random(n + 1) for n, shift, spread in clients]
        q_hat = rule(calibration)
        coverages.append(np.mean(np.concatenate(test).astype(np.float32) <= q_hat))
    error = np.std(coverages, ddof=1) / np.sqrt(REPEATS)
    return np.mean(coverages), error, coverage_band(ALPHA, int(sizes.sum()), K)


def named(rule):
    return lambda scores: calibrate(scores, ALPHA, rule).q_hat


def with_total(total):
    """The exact search with ⌈(1−α)·total(N, K)⌉ in place of Theorem 1's rank."""

    def search(scores):
        server = order.search_rank(lambda n: exact_rank(ALPHA, total(sum(n), len(n)), 0))
        return converse(server, order.histogram_client, scores)[0]

    return search


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_exact_covers_within_the_band(scenario):
    mean, error, (low, high) = simulate(scenario, named("exact"))
    assert error < 0.001
    assert low - 3 * error <= mean <= high + 3 * error


@pytest.mark.parametrize("scenario", [equal_clients_apart, overlapping])
def test_averaging_local_quantiles_falls_below_the_band(scenario):
    mean, error, (low, _) = simulate(scenario, named("average"))
    assert mean < low - 10 * error


def test_the_ends_of_the_band_are_where_theory_puts_them():
    # By counting: (rank + clients wholly below q̂) / (N + K).
    mean, error, _ = simulate(one_large_client_below, named("exact"), seed=1)
    assert mean == pytest.approx(171 / 190, abs=4 * error)
    mean, error, _ = simulate(equal_clients_apart, named("exact"), seed=1)
    assert mean == pytest.approx((180 + 9) / 200, abs=4 * error)


@pytest.mark.parametrize(
    ("total", "scenario", "side"),
    [
        (lambda n, clients: n, one_large_client_below, "below"),
        (lambda n, clients: n + 1, one_large_client_below, "below"),
        (lambda n, clients: n + clients - 2, one_large_client_below, "below"),
        (lambda n, clients: n + clients + 4, equal_clients_apart, "above"),
        (lambda n, clients: n + 2 * clients, equal_clients_apart, "above"),
    ],
    ids=["N", "N+1", "N+K-2", "N+K+4", "N+2K"],
)
def test_a_wrong_rank_is_caught(total, scenario, side):
    mean, error, (low, high) = simulate(scenario, with_total(total))
    assert mean < low - 3 * error if side == "below" else mean > high + 3 * error


# Test nodes that are not spread over the clients as calibration nodes are: the rule mixture.

SIZES = np.array([60, 25, 10, 40])
MIXTURES = [(0.05, 0.05, 0.8, 0.1), (1, 2, 3, 30), (1, 0, 0, 1), (61, 26, 11, 41)]


def simulate_mixture(shares, rule, shifts=(0.0, 0.4, 2.0, 2.5), spreads=(1.0, 1.0, 3.0, 0.5)):
    """Mean coverage of a test node drawn with these shares, and its standard error.

    A score of client k is uniform on shift … shift + spread, so given q̂ a test node's coverage is
    known and needs no draw.
    """
    rng = np.random.default_rng(0)
    parts = np.array(shares) / np.sum(shares)
    coverages = []
    for _ in range(REPEATS):
        drawn = [a + b * rng.random(n) for n, a, b in zip(SIZES, shifts, spreads, strict=True)]
        given = shares if rule == "mixture" else None
        q_hat = calibrate(drawn, ALPHA, rule, shares=given).q_hat
        coverages.append(parts @ np.clip((q_hat - np.array(shifts)) / spreads, 0, 1))
    return np.mean(coverages), np.std(coverages, ddof=1) / np.sqrt(REPEATS)


@pytest.mark.parametrize("shares", MIXTURES)
def test_mixture_covers_within_its_band(shares):
    mean, error = simulate_mixture(shares, "mixture")
    low, high = mixture_band(ALPHA, SIZES, shares)
    assert error < 0.003
    assert low - 3 * error <= mean <= high + 3 * error


def test_exact_does_not_cover_another_mixture():
    mean, error = simulate_mixture(MIXTURES[0], "exact")
    assert error < 0.003
    assert mean < 1 - ALPHA - 0.1


def test_pooled_can_fall_below_its_level():
    # Theorem 1's shares, and q̂ within one large client below all others: ⌈0.9 · 181⌉/190.
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(REPEATS):
        sizes, shifts, _ = one_large_client_below(rng)
        drawn = [shift + rng.random(n) for n, shift in zip(sizes, shifts, strict=True)]
        q_hat = calibrate(drawn, ALPHA, "pooled").q_hat
        covered.append((sizes + 1) / (sizes + 1).sum() @ np.clip(q_hat - shifts, 0, 1))
    error = np.std(covered, ddof=1) / np.sqrt(REPEATS)
    assert np.mean(covered) == pytest.approx(163 / 190, abs=4 * error)
    assert np.mean(covered) < 1 - ALPHA - 20 * error
