"""What a training sends, counted from the arrays that pass."""

import numpy as np

from fedcover.algorithm.fedavg import alone, fedavg
from fedcover.algorithm.requests import Tell
from fedcover.carriers.loopback import Loopback
from fedcover.ledger import Ledger, totals
from fedcover.training.plan import Plan

from .training.carried import PART, parties_of
from .training.conftest import small_federation

PLAN = Plan("gcn", 3, hidden=4, rounds=3)
PARAMETERS = 40 * 4 + 4 + 4 * 3 + 3
WORDS = 1 + 8  # whether to train, and of how many nodes a party's are a share


def test_training_sends_weights_both_ways_and_losses_up():
    loopback = Loopback(parties_of(small_federation(2), PLAN))
    loopback.carry(fedavg(PART, PLAN))
    # The first weights follow from the seed; the last average is judged, and told once more.
    assert totals(loopback.ledger.entries) == {
        "weights": {
            "down": 2 * (4 * PARAMETERS * 4 + 4 * WORDS),
            "up": 2 * (3 * PARAMETERS * 8 + 4 * 16),
        }
    }


def test_models_of_their_own_stay_at_the_parties():
    plan = Plan("gcn", 3, hidden=4, rounds=3, average=False)
    loopback = Loopback(parties_of(small_federation(2), plan))
    loopback.carry(alone("fed/local", plan))
    assert max(entry.bytes for entry in loopback.ledger) == 8


def test_what_the_server_concludes_reaches_every_party_once():
    loopback = Loopback(parties_of(small_federation(3), PLAN))

    def talk():
        yield Tell("fed/sets", {"thresholds": np.zeros(5, np.float32)})

    loopback.carry(talk())
    assert [(e.party, e.direction, e.shape, e.bytes, e.rounds) for e in loopback.ledger] == [
        (k, "down", (5,), 20, 1) for k in range(3)
    ]


def test_equal_messages_of_following_rounds_are_one_entry():
    ledger = Ledger()
    for round_ in (0, 1, 2, 5):
        ledger.record("fed/shared", "train", 0, round_, "up", {"loss": np.zeros(1)})
    assert [(entry.round, entry.rounds) for entry in ledger] == [(0, 3), (5, 1)]
