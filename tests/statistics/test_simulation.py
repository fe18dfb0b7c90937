"""Theorem 1 in simulation: 2,000 repetitions, ten strongly shifted clients, scores drawn by numpy.

As the theorem supposes, a test node comes from client k with probability (n_k + 1)/(N + K): every
repetition tests n_k + 1 fresh nodes of each client. Clients are small, so that the band's width
K/(N + K), about 0.05, is a hundred standard errors and a rank that is off by a few shows.
"""

import numpy as np
import pytest

from fedcover.conformal import calibrate, converse, coverage_band, exact_rank, quantiles

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
        server = quantiles.order_statistic_server(
            lambda n, clients: exact_rank(ALPHA, total(n, clients), 0)
        )
        return converse(server, quantiles.histogram_client, scores)[0]

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
