"""Coverage by client and by class where each has its own threshold, and where it has not.

Given the scores, only the calibration/test re-splits are random. A client that calibrates alone is
then known exactly: without ties, whatever its scores are, each re-split's coverage is
Beta-binomial with mean r/(n + 1). A class at several clients has the theorem's band, for clients
weighed by their calibration nodes of the class.
"""

import numpy as np
import polars as pl
import pytest

from fedcover import Config, load, run
from fedcover.conformal import (
    beta_binomial,
    coverage_band,
    evaluate_resplits,
    exact_rank,
    group_quantiles_over_resplits,
    quantile_over_resplits,
)
from fedcover.graphs.splits import Role, resplits

ALPHA, REPEATS, ERRORS = 0.1, 400, 4
CLIENTS, CLASSES = 4, 5
SIZES = (160, 240, 320, 400)  # calibration and test nodes of a client, half of them each

MIX = np.array(  # of classes, by client; every client has some of each
    [
        [0.40, 0.25, 0.15, 0.10, 0.10],
        [0.30, 0.30, 0.20, 0.10, 0.10],
        [0.10, 0.30, 0.30, 0.20, 0.10],
        [0.10, 0.20, 0.25, 0.25, 0.20],
    ]
)


@pytest.fixture(scope="module")
def synthetic():
    """Four clients and five classes; scores grow with both, by far more than their spread."""
    rng = np.random.default_rng(3)
    client = np.repeat(np.arange(CLIENTS), SIZES)
    y = np.array([rng.choice(CLASSES, p=MIX[k]) for k in client])
    scores = rng.random((len(y), CLASSES)) * 10
    true = rng.normal(y * 1.0 + 0.6 * client, 0.3 + 0.2 * y)
    scores[np.arange(len(y)), y] = true
    roles = np.full(len(y), Role.TEST, dtype=np.int8)
    for k in range(CLIENTS):
        own = np.flatnonzero(client == k)
        roles[own[: len(own) // 2]] = Role.CALIB
    mask = resplits(roles, client, REPEATS, np.random.default_rng(11))
    return scores.astype(np.float32), y, client, mask


def judged(synthetic, kind):
    """Metrics over the re-splits by client and class, and each re-split's thresholds."""
    scores, y, client, mask = synthetic
    true = scores[np.arange(len(y)), y]
    kinds = {"client": client, "class": y}
    if kind == "pooled":
        q_hats = quantile_over_resplits("exact", true, client, mask, [ALPHA])[:, 0]
    else:
        q_hats = group_quantiles_over_resplits("exact", true, client, kinds[kind], mask, [ALPHA])
        q_hats = q_hats[:, 0]
    of_node = client if kind == "client" else None
    return evaluate_resplits(scores, y, q_hats, ~mask, kinds, node_group=of_node), q_hats


def test_every_client_that_calibrates_alone_covers_what_the_beta_law_says(synthetic):
    found, q_hats = judged(synthetic, "client")
    scores, y, client, mask = synthetic
    covered = scores[np.arange(len(y)), y] <= q_hats[:, client]
    for k, size in enumerate(SIZES):
        own = client == k
        each = np.array([hit[own & ~row].mean() for hit, row in zip(covered, mask, strict=True)])
        mean, sd = beta_binomial(ALPHA, size // 2, size // 2)
        assert abs(each.mean() - mean) < ERRORS * sd / REPEATS**0.5
        assert each.std(ddof=1) == pytest.approx(sd, rel=0.2)
        assert found.groups["client"].coverage[k] == pytest.approx(each.mean())


def test_pooled_calibration_leaves_clients_and_classes_behind(synthetic):
    found, _ = judged(synthetic, "pooled")
    assert abs(found.coverage - (1 - ALPHA)) < 0.01
    for kind, worst in (("client", 0.85), ("class", 0.6)):
        assert found.groups[kind].coverage.min() < worst
        assert found.groups[kind].coverage.max() > 0.99


def promised(synthetic, q_hats):
    """By class: mean coverage of a node drawn as the theorem draws it, its error, and the band."""
    scores, y, client, mask = synthetic
    covered = scores[np.arange(len(y)), y] <= q_hats[:, y]
    for c in range(CLASSES):
        each, high = [], []
        for hit, row in zip(covered, mask, strict=True):
            calib = np.bincount(client[row & (y == c)], minlength=CLIENTS)
            test = np.bincount(client[~row & (y == c)], minlength=CLIENTS)
            hits = np.bincount(client[~row & (y == c)], hit[~row & (y == c)], minlength=CLIENTS)
            assert test.min() > 0
            assert calib.min() > 0
            each.append(calib @ (hits / test) / calib.sum())
            high.append(coverage_band(ALPHA, calib.tolist())[1])
        error = np.std(each, ddof=1) / REPEATS**0.5
        yield np.mean(each), error, np.mean(high)


def test_every_class_is_inside_its_band(synthetic):
    found, q_hats = judged(synthetic, "class")
    for c, (mean, error, high) in enumerate(promised(synthetic, q_hats)):
        assert error < 0.005
        assert 1 - ALPHA - ERRORS * error <= mean <= high + ERRORS * error
        # The mean over test nodes weighs clients a little otherwise, here by very little.
        assert found.groups["class"].coverage[c] == pytest.approx(mean, abs=0.01)


def test_a_rank_that_is_a_few_too_low_is_caught(synthetic):
    scores, y, _, mask = synthetic
    true = scores[np.arange(len(y)), y]

    def too_low(own):
        return np.sort(own)[exact_rank(ALPHA, len(own), 0) - 4]  # three below ⌈(1−α)N_c⌉

    q_hats = [[too_low(true[row & (y == c)]) for c in range(CLASSES)] for row in mask]
    found = list(promised(synthetic, np.array(q_hats)))
    assert all(mean < 1 - ALPHA - ERRORS * error for mean, error, _ in found)


# The same on Cora.

LEVELS = (0.1, 0.2)


@pytest.fixture(scope="module")
def runs():
    settings = {
        "clients": 3,
        "methods": ("fed",),
        "scores": ("aps",),  # without ties
        "alphas": LEVELS,
        "seeds": 2,
        "rounds": 15,
    }
    cora = load("cora")
    kinds = ("pooled", "client", "class")
    return {kind: run(cora, Config(**settings, calibrate=kind)) for kind in kinds}


def cells(finished, kind):
    """Every group's mean coverage over re-splits, its counts, and what theory says of the mean."""
    key = ["seed", "alpha", "group"]
    groups = finished.groups.filter(kind=kind).select(*key, "n_test", "coverage")
    table = groups.join(
        finished.thresholds.select(*key, "n_calibration", "clients", "fell_back"), on=key
    )
    for row in table.iter_rows(named=True):
        assert not row["fell_back"]
        n, m = row["n_calibration"], round(row["n_test"])
        mean, sd = beta_binomial(row["alpha"], n, m)
        yield row, mean, sd / finished.config.resplits**0.5


def test_on_cora_every_client_covers_what_the_beta_law_says(runs):
    found = list(cells(runs["client"], "client"))
    assert len(found) == 3 * 2 * len(LEVELS)
    for row, mean, error in found:
        assert error < 0.0035
        assert abs(row["coverage"] - mean) < ERRORS * error, row


def test_on_cora_every_class_is_inside_its_band(runs):
    found = list(cells(runs["class"], "class"))
    assert len(found) == 7 * 2 * len(LEVELS)
    for row, _, error in found:
        low, high = 1 - row["alpha"], 1 - row["alpha"] + 2 / row["n_calibration"]
        assert low - ERRORS * error <= row["coverage"] <= high + ERRORS * error, row


def test_on_cora_pooled_calibration_fails_the_same_check(runs):
    groups = runs["pooled"].groups
    for kind, short in (("class", 0.05), ("client", 0.01)):
        worst = groups.filter(kind=kind).filter(pl.col("alpha") == 0.1)["coverage"].min()
        assert worst < 0.9 - short
