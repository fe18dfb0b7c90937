import numpy as np
import torch
from fedcover.federation.ledger import Ledger

from fedcover import conformal
from fedcover.models import initial_weights


def test_training_sends_weights_both_ways_and_counts_and_losses_up():
    weights = initial_weights("gcn", 5, 4, 3, np.random.default_rng(0))
    ledger = Ledger()
    ledger.record_training(weights, clients=2, rounds=3, average=True)
    parameters = 5 * 4 + 4 + 4 * 3 + 3
    expected = 2 * 3 * parameters * torch.float32.itemsize
    assert ledger.totals() == {
        "weights": {"up": expected, "down": expected},
        "training nodes": {"up": 2 * 8, "down": 0},  # once, not in each round
        "validation loss": {"up": 2 * 3 * 16, "down": 0},
    }
    alone = Ledger()
    alone.record_training(weights, clients=2, rounds=3, average=False)
    assert list(alone.totals()) == ["validation loss"]


def test_what_the_server_concludes_reaches_every_client_once():
    ledger = Ledger()
    ledger.announce("thresholds", np.zeros(5, np.float32), clients=3)
    assert [(e.client, e.direction, e.shape, e.bytes, e.rounds) for e in ledger] == [
        (k, "down", (5,), 20, 1) for k in range(3)
    ]


def test_the_exact_quantile_is_four_rounds_of_counts():
    ledger = Ledger()
    scores = [np.random.default_rng(k).random(50) for k in range(3)]
    conformal.calibrate(scores, 0.1, on_message=ledger.listener())
    up = [e for e in ledger if e.direction == "up"]
    assert {(e.kind, e.shape, e.bytes) for e in up} == {("quantile", (256,), 2048)}
    assert sorted((e.client, e.round) for e in up) == [(k, r) for k in range(3) for r in range(4)]
