"""The task ``sets``: its loss by hand, its halves, and who takes part."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fedcover.federation import InProcess, Plan, Reference
from fedcover.federation.sets import SetField, SetSize, SetsPlan, halves, size_of
from fedcover.federation.stack import Stack

PLAN = SetsPlan("gcn", 3, hidden=8, dropout=0.0, rounds=3, dtype=torch.float64)
ENGINES = pytest.mark.parametrize("engine", [InProcess(), Reference()], ids=["fast", "plain"])


@given(st.integers(0, 60), st.integers(0, 9), st.integers(0, 9), st.integers(0, 1 << 22))
def test_halves_are_a_partition_that_repeats(count, seed, client, step):
    calibrating, predicting = halves(count, seed, client, step)
    np.testing.assert_array_equal(np.sort([*calibrating, *predicting]), np.arange(count))
    assert len(predicting) - len(calibrating) in (0, 1)
    for mine, again in zip(
        (calibrating, predicting), halves(count, seed, client, step), strict=True
    ):
        np.testing.assert_array_equal(mine, again)


def test_halves_change_with_seed_client_and_step():
    first = halves(40, 0, 0, 0).calibrating
    for other in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        assert not np.array_equal(first, halves(40, *other).calibrating)


def test_the_loss_by_hand(make_federation):
    """One client with four nodes: two scores make the quantile, two nodes are counted."""
    client = replace(make_federation(1).clients[0], train=np.array([7, 3, 11, 5]))
    client = replace(client, y=np.where(np.arange(60) == 3, 0, 1))
    size = SetSize(weight=2.0, alpha=0.25, tau=0.5)
    plan = replace(PLAN, size=size)
    federation = replace(make_federation(1, seed=6), clients=[client])
    field = SetField(Stack([federation], plan))
    probs = torch.tensor(
        [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.5, 0.25, 0.25]],
        dtype=torch.float64,
    )
    own = np.array([0.7, 0.8, 0.4, 0.25])  # of nodes 3, 5, 7, 11, whose labels are 0, 1, 1, 1
    calibrating, predicting = halves(4, 6, 0, step=9)
    low, high = np.sort(1 - own[calibrating])
    quantile = low + 0.75 * (high - low)
    counts = 1 / (1 + np.exp(-(quantile - (1 - probs.numpy()[predicting])) / 0.5))
    expected = -np.log(own).mean() + 2.0 * counts.sum(axis=1).mean()
    assert float(field._loss(probs.log(), 9)) == pytest.approx(expected, rel=1e-12)


def test_a_client_with_one_node_has_the_cross_entropy_alone(make_federation):
    federation = make_federation(3)
    lone = replace(federation, clients=federation.clients[:1])
    field = SetField(Stack([lone], PLAN))
    logits = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    assert float(field._loss(logits, 0)) == pytest.approx(float(cross_entropy(logits, field.y)))


@ENGINES
def test_the_weight_of_the_size_matters(make_federation, engine):
    labels = Plan("gcn", 3, hidden=8, dropout=0.0, rounds=3, dtype=torch.float64)
    (plain,), (unsized,), (sized,) = (
        engine.train([make_federation(3)], plan)
        for plan in (labels, replace(PLAN, size=SetSize(weight=0.0)), PLAN)
    )
    np.testing.assert_allclose(unsized.logits[1], plain.logits[1], rtol=0, atol=1e-12)
    assert np.abs(sized.logits[1] - plain.logits[1]).max() > 1e-3


@ENGINES
def test_what_is_trained_for_gets_smaller(make_federation, engine):
    """The smooth size at the training nodes, after as many rounds of cross-entropy alone."""
    sizes = {}
    for weight in (0.0, 1.0):
        federations = [make_federation(1, seed=seed) for seed in range(3)]
        plan = replace(PLAN, rounds=5, size=SetSize(weight=weight))
        trained = engine.train([without_validation(f) for f in federations], plan)
        sizes[weight] = sum(map(smooth_size, federations, trained))
    assert sizes[1.0] < sizes[0.0] - 0.5


def without_validation(federation):
    clients = [replace(c, valid=np.empty(0, dtype=np.int64)) for c in federation.clients]
    return replace(federation, clients=clients)  # so that the last round is kept


def smooth_size(federation, trained):
    client = federation.clients[0]
    scores = 1 - torch.from_numpy(trained.logits[0][client.train]).softmax(dim=1).numpy()
    true = scores[np.arange(len(scores)), client.y[client.train]]
    return (1 / (1 + np.exp((scores - np.quantile(true, 0.9)) / 0.1))).sum(axis=1).mean()


@ENGINES
def test_a_client_without_training_nodes_gets_the_others_model(make_federation, engine):
    federation = make_federation(3)
    idle = replace(federation.clients[2], train=np.empty(0, dtype=np.int64))
    clients = [*federation.clients[:2], idle]
    (with_idle,) = engine.train([replace(federation, clients=clients)], PLAN)
    (without,) = engine.train(
        [
            replace(
                federation,
                clients=[*clients[:2], replace(idle, valid=idle.train)],
            )
        ],
        replace(PLAN, rounds=with_idle.best_round + 1),
    )
    for mine, other in zip(
        with_idle.weights[2].tensors(), without.weights[0].tensors(), strict=True
    ):
        assert torch.isfinite(mine).all()
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_a_plain_plan_has_the_usual_size():
    assert size_of(Plan("gcn", 3, task="sets")) == SetSize()
    assert size_of(replace(PLAN, size=SetSize(alpha=0.3))).alpha == 0.3
