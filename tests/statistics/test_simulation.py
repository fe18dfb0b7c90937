"""The theorems in simulation: 2,000 repetitions, ten strongly shifted clients, scores by numpy.

A test node comes from client k with the share that the theorem supposes: n_k/N for ``exact``, and
(n_k + 1)/(N + K) for ``theorem1``. Clients are small, so that the bands are many standard errors
wide and a rank that is off by a few shows.
"""

import numpy as np
import pytest

from fedcover.conformal import (
    calibrate,
    converse,
    coverage_band,
    exact_rank,
    order,
)
from fedcover.conformal.targets import Target

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


def simulate(scenario, rule, seed=0, more=1, band="theorem1"):
    """Mean coverage over the repetitions, its standard error, and the band.

    Every repetition tests n_k + ``more`` fresh nodes of each client.
    """
    rng = np.random.default_rng(seed)
    coverages = []
    for _ in range(REPEATS):
        sizes, shifts, spreads = scenario(rng)
        clients = list(zip(sizes, shifts, spreads, strict=True))
        calibration = [shift + spread * rng.random(n) for n, shift, spread in clients]
        test = [shift + spread * rng.random(n + more) for n, shift, spread in clients]
        q_hat = rule(calibration)
        coverages.append(np.mean(np.concatenate(test).astype(np.float32) <= q_hat))
    error = np.std(coverages, ddof=1) / np.sqrt(REPEATS)
    return np.mean(coverages), error, coverage_band(ALPHA, sizes.tolist(), band)


def named(rule):
    return lambda scores: calibrate(scores, ALPHA, rule).q_hat


def with_rank(rank):
    """The search for the rank(N, K)-th smallest score."""

    def search(scores):
        server = order.search(lambda n: Target((1,) * len(n), rank(sum(n), len(n))))
        return converse(server, order.histogram_client, scores)[0]

    return search


def with_total(total):
    """The search with ⌈(1−α)·total(N, K)⌉ in place of Theorem 1's rank."""
    return with_rank(lambda n, clients: exact_rank(ALPHA, total(n, clients), 0))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_theorem_1_covers_within_its_band(scenario):
    mean, error, (low, high) = simulate(scenario, named("theorem1"))
    assert error < 0.001
    assert low - 3 * error <= mean <= high + 3 * error


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_exact_covers_within_its_band_which_is_five_times_as_narrow(scenario):
    mean, error, (low, high) = simulate(scenario, named("exact"), more=0, band="exact")
    assert error < 0.001
    assert high - low == pytest.approx(2 / (190 if scenario is not one_large_client_below else 180))
    assert low - 3 * error <= mean <= high + 3 * error


@pytest.mark.parametrize("less", [1, 2, 3])
def test_a_rank_below_that_of_exact_is_caught(less):
    # q̂ falls into the large client, all others lie above it.
    rule = with_rank(lambda n, _: exact_rank(ALPHA, n, 0) + 1 - less)
    mean, error, (low, _) = simulate(one_large_client_below, rule, more=0, band="exact")
    assert mean < low - 3 * error


@pytest.mark.parametrize("scenario", [equal_clients_apart, overlapping])
def test_averaging_local_quantiles_falls_below_the_band(scenario):
    mean, error, (low, _) = simulate(scenario, named("average"))
    assert mean < low - 10 * error


def test_the_ends_of_the_band_are_where_theory_puts_them():
    # By counting: (rank + clients wholly below q̂) / (N + K).
    mean, error, _ = simulate(one_large_client_below, named("theorem1"), seed=1)
    assert mean == pytest.approx(171 / 190, abs=4 * error)
    mean, error, _ = simulate(equal_clients_apart, named("theorem1"), seed=1)
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


# Test nodes that are not spread over the clients as calibration nodes are: shares.

SIZES = np.array([60, 25, 10, 40])
SPREADS = [(0.05, 0.05, 0.8, 0.1), (1, 2, 3, 30), (1, 0, 0, 1), (61, 26, 11, 41)]


def simulate_spread(shares, given, shifts=(0.0, 0.4, 2.0, 2.5), spreads=(1.0, 1.0, 3.0, 0.5)):
    """Mean coverage of a test node drawn with these shares, and its standard error.

    A score of client k is uniform on shift … shift + spread, so given q̂ a test node's coverage is
    known and needs no draw.
    """
    rng = np.random.default_rng(0)
    parts = np.array(shares) / np.sum(shares)
    coverages = []
    for _ in range(REPEATS):
        drawn = [a + b * rng.random(n) for n, a, b in zip(SIZES, shifts, spreads, strict=True)]
        q_hat = calibrate(drawn, ALPHA, shares=given).q_hat
        coverages.append(parts @ np.clip((q_hat - np.array(shifts)) / spreads, 0, 1))
    return np.mean(coverages), np.std(coverages, ddof=1) / np.sqrt(REPEATS)


@pytest.mark.parametrize("shares", SPREADS)
def test_exact_covers_any_spread_within_its_band(shares):
    mean, error = simulate_spread(shares, shares)
    low, high = coverage_band(ALPHA, SIZES.tolist(), shares=shares)
    assert error < 0.003
    assert low - 3 * error <= mean <= high + 3 * error


def test_exact_does_not_cover_another_spread_than_it_was_told():
    mean, error = simulate_spread(SPREADS[0], None)
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
