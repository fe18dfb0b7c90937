"""The numbers that decide, against hand calculation, scikit-learn, numpy, and chance."""

import numpy as np
import pytest
from sklearn.metrics import log_loss as sklearn_log_loss

from fedcover import conformal
from fedcover.tuning import criterion
from fedcover.tuning.criterion import Validation, enough, log_loss, score_sizes


def simulated(n, seed, labels=4, signal=1.5):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, labels, n)
    logits = signal * np.eye(labels)[y] + rng.normal(size=(n, labels))
    return Validation(logits.astype(np.float32), y, rng.integers(0, 3, n))


def test_log_loss_is_that_of_scikit_learn_however_nodes_are_spread():
    nodes = simulated(50, 0)
    probs = conformal.softmax(nodes.logits)
    assert log_loss(nodes) == pytest.approx(
        sklearn_log_loss(nodes.labels, probs, labels=range(4)), rel=1e-9
    )
    together = nodes._replace(client=np.zeros(50, np.int64))
    assert log_loss(together) == pytest.approx(log_loss(nodes), rel=1e-12)


def test_log_loss_by_hand():
    # Probabilities 1/2 at one client; 3/4 and 1/4 at the other.
    logits = np.log(np.array([[1, 1], [3, 1], [3, 1]], np.float32))
    nodes = Validation(logits, np.array([0, 0, 1]), np.array([5, 2, 2]))
    expected = -(np.log(1 / 2) + np.log(3 / 4) + np.log(1 / 4)) / 3
    assert log_loss(nodes) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("nodes", "alpha", "answer"),
    [
        (18, 0.1, True),  # halves of 9: rank ⌈0.9 · 10⌉ = 9
        (17, 0.1, False),  # 8: ⌈0.9 · 9⌉ = 9
        (38, 0.05, True),  # 19: ⌈0.95 · 20⌉ = 19
        (37, 0.05, False),
        (1, 0.5, False),
        (2, 0.5, True),  # 1: ⌈0.5 · 2⌉ = 1
        (0, 0.5, False),
    ],
)
def test_when_nodes_are_enough(nodes, alpha, answer):
    assert enough(nodes, alpha) is answer


def test_lac_sizes_are_what_numpy_finds():
    nodes, alpha, times = simulated(61, 3), 0.2, criterion.RESPLITS
    lac, *_ = score_sizes([nodes], alpha, 9, temperature=False)
    rng = np.random.default_rng([9, 0, 0x5C0E])
    rng.random(61)  # u, which LAC does not use
    powers = np.exp(nodes.logits.astype(float))
    scores = (1 - powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    true = scores[np.arange(61), nodes.labels]
    kept = hits = 0
    for _ in range(times):
        order = rng.permutation(61)
        for cal, rest in ((order[:30], order[30:]), (order[30:], order[:30])):
            n = len(cal)
            q = np.quantile(true[cal], np.ceil(0.8 * (n + 1)) / n, method="inverted_cdf")
            kept += (scores[rest] <= q).sum()
            hits += (true[rest] <= q).sum()
    assert lac.size == pytest.approx(kept / (61 * times), rel=1e-12)
    assert lac.coverage == pytest.approx(hits / (61 * times), rel=1e-12)
    assert lac.size_sd is None


def test_a_sure_model_needs_one_label_and_an_ignorant_one_nearly_all():
    y = np.arange(60) % 3
    sure = Validation((20 * np.eye(3)[y]).astype(np.float32), y, np.zeros(60, np.int64))
    sizes = score_sizes([sure], 0.1, 0)
    assert [one.score for one in sizes] == ["lac", "aps", "raps"]
    assert sizes[0].size == pytest.approx(1.0)
    assert sizes[0].coverage == 1.0
    rng = np.random.default_rng(0)
    ignorant = sure._replace(logits=rng.normal(scale=1e-3, size=(60, 3)).astype(np.float32))
    assert all(one.size > 2.4 for one in score_sizes([ignorant], 0.1, 0))


def test_coverage_keeps_its_level_over_many_samples(monkeypatch):
    """The exact quantile of K = 1 promises 1 − α; with halves of 20 it is 19/21 at most."""
    monkeypatch.setattr(criterion, "RESPLITS", 2)
    samples = [simulated(40, seed) for seed in range(150)]
    for one in score_sizes(samples, 0.1, 0, temperature=False)[:2]:
        # Rank 19 of 20 scores: coverage 19/21 on average, with a standard error below 0.006.
        assert abs(one.coverage - 19 / 21) < 0.02
        assert one.size_sd > 0


def test_the_choice_depends_on_the_seed_alone():
    samples = [simulated(40, 1), simulated(40, 2)]
    assert score_sizes(samples, 0.1, 4) == score_sizes(samples, 0.1, 4)
    assert score_sizes(samples, 0.1, 4) != score_sizes(samples, 0.1, 5)


def test_many_nodes_are_halved_once(monkeypatch):
    big = simulated(6000, 0)
    found = score_sizes([big], 0.1, 0)
    monkeypatch.setattr(criterion, "RESPLITS", 1)
    assert score_sizes([big], 0.1, 0) == found
