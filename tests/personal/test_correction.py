"""A correction of the outputs: who trains it, what it starts as, and when it is dropped."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcover.errors import UsageError
from fedcover.federation import Client, Federation, InProcess, Plan, Reference, Trained
from fedcover.neighbors.augment import augment
from fedcover.personal import PersonalSettings
from fedcover.personal.correction import (
    Parted,
    correction_clients,
    correction_plan,
    hold_out,
    no_correction,
    train_correction,
)

BASE = Plan("gcn", 3, hidden=8, dropout=0.0, rounds=4, dtype=torch.float64)
PLAN = correction_plan(BASE, PersonalSettings(correction_hidden=6, correction_rounds=8))
ENGINES = pytest.mark.parametrize("engine", [InProcess(), Reference()], ids=["fast", "plain"])


def make_client(rng, nodes, train):
    y = rng.integers(0, 3, size=nodes)
    source = np.repeat(np.arange(nodes), 3)
    friends = [rng.choice(np.flatnonzero(y == y[node])) for node in source]
    edges = np.stack([source, np.array(friends)])[:, source != np.array(friends)]
    both = np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1)
    order = rng.permutation(nodes)
    x = np.eye(3)[y] + rng.normal(size=(nodes, 3))
    return Client(x, both, y, order[:train], order[train : train + nodes // 3])


def make_federation(seed=0, sizes=((40, 18), (30, 9), (9, 2), (12, 1))):
    rng = np.random.default_rng(seed)
    return Federation([make_client(rng, *size) for size in sizes], seed)


def outputs(federation, logits_of):
    """What an engine would have returned for a base model with these logits."""
    logits = [logits_of(client) for client in federation.clients]
    return Trained([], logits, np.array([2.0, 1.0]), 1, 2, 0.0)


def misled(client):
    """A base model that is sure of the label after the true one."""
    noise = np.random.default_rng(client.nodes).normal(size=(client.nodes, 3))
    return 3 * np.eye(3)[(client.y + 1) % 3] + 0.3 * noise


def right(client):
    """A base model that needs no correction."""
    noise = np.random.default_rng(client.nodes).normal(size=(client.nodes, 3))
    return 9 * np.eye(3)[client.y] + 0.3 * noise


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=5),
    st.floats(0.01, 0.99),
    st.integers(0, 99),
)
def test_held_out_nodes_and_the_base_models_part_the_training_nodes(counts, share, seed):
    empty = np.empty((2, 0), dtype=np.int64)
    none = np.array([], dtype=np.int64)
    clients = [
        Client(np.ones((40, 1)), empty, np.zeros(40, dtype=np.int64), np.arange(5, 5 + n), none)
        for n in counts
    ]
    parted = hold_out(Federation(clients, seed), share)
    for count, client, part, held in zip(
        counts, clients, parted.base.clients, parted.held, strict=True
    ):
        np.testing.assert_array_equal(np.sort([*part.train, *held]), client.train)
        assert len(held) <= share * count + 1e-6
        assert len(part.train) >= min(count, 1)
        assert len(held) > share * count - 1 or len(part.train) == 1
    assert parted.empty == (not any(map(len, parted.held)))


def test_a_third_of_the_nodes_is_held_out_and_small_clients_give_none():
    parted = hold_out(make_federation(), 1 / 3)
    assert [len(nodes) for nodes in parted.held] == [6, 3, 0, 0]
    assert [len(client.train) for client in parted.base.clients] == [12, 6, 2, 1]
    for before, after in zip(make_federation().clients, parted.base.clients, strict=True):
        np.testing.assert_array_equal(before.valid, after.valid)


def test_what_is_held_out_depends_on_seed_and_number_alone():
    federation = make_federation()
    shuffled = [replace(c, train=c.train[::-1]) for c in federation.clients[:1]]
    alone = hold_out(replace(federation, clients=shuffled), 1 / 3)
    np.testing.assert_array_equal(alone.held[0], hold_out(federation, 1 / 3).held[0])
    other = hold_out(replace(federation, seed=1), 1 / 3)
    assert not np.array_equal(alone.held[0], other.held[0])


def test_the_correction_sees_probabilities_on_the_same_graph():
    federation = make_federation()
    links = np.array([[0, 1, 1], [0, 2, 3]])
    grown = augment(federation.clients[0], np.ones((2, 3)), links, weight=0.4)
    parted = hold_out(replace(federation, clients=[grown, *federation.clients[1:]]), 1 / 3)
    base = outputs(parted.base, lambda c: np.arange(3.0 * c.nodes).reshape(-1, 3) % 5)
    corrected = correction_clients(parted, base).clients
    for client, held, logits, now in zip(
        parted.base.clients, parted.held, base.logits, corrected, strict=True
    ):
        assert now.x.shape == (client.nodes, 3)
        np.testing.assert_allclose(now.x, np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
        np.testing.assert_array_equal(now.offset, logits)
        np.testing.assert_array_equal(now.train, held)
        np.testing.assert_array_equal(now.valid, client.valid)
        np.testing.assert_array_equal(now.edge_index, client.edge_index)
        np.testing.assert_array_equal(now.edge_weight, client.edge_weight)
    assert (corrected[0].generated, corrected[0].generated_weight) == (2, 0.4)


@ENGINES
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_the_start_is_the_base_model(engine, model):
    parted = hold_out(make_federation(), 1 / 3)
    (base,) = engine.train([parted.base], replace(BASE, model=model))
    (trained,) = train_correction(engine, [parted], [base], replace(PLAN, model=model))
    assert trained.valid_loss[0] == pytest.approx(base.valid_loss[base.best_round], rel=1e-6)
    assert len(trained.valid_loss) == PLAN.rounds + 1


@ENGINES
def test_a_model_that_is_wrong_is_corrected_also_where_nothing_was_held_out(engine):
    parted = hold_out(make_federation(), 1 / 3)
    plan = replace(PLAN, rounds=30, lr=0.1)
    (trained,) = train_correction(engine, [parted], [outputs(parted.base, misled)], plan)
    assert trained.best_round > 0
    assert trained.valid_loss[trained.best_round] < 0.5 * trained.valid_loss[0]
    for client, logits in zip(parted.base.clients, trained.logits, strict=True):
        rows = client.valid
        assert np.mean(misled(client)[rows].argmax(axis=1) == client.y[rows]) < 0.1
        assert np.mean(logits[rows].argmax(axis=1) == client.y[rows]) > 0.6


@ENGINES
def test_a_correction_that_does_not_help_is_dropped(engine):
    parted = hold_out(make_federation(), 1 / 3)
    base = outputs(parted.base, right)
    (trained,) = train_correction(engine, [parted], [base], replace(PLAN, lr=5.0))
    assert trained.best_round == 0
    for logits, before in zip(trained.logits, base.logits, strict=True):
        np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
def test_engines_train_the_same_correction(average):
    parted = [hold_out(make_federation(seed), 1 / 3) for seed in (1, 2)]
    base = [outputs(one.base, misled) for one in parted]
    plan = replace(PLAN, average=average)
    ours, theirs = (train_correction(e, parted, base, plan) for e in (InProcess(), Reference()))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.best_round == other.best_round > 0
        for a, b in zip(mine.logits, other.logits, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


@ENGINES
def test_a_federation_that_holds_nothing_out_is_left_alone(engine):
    tiny, large = make_federation(3, sizes=((9, 2), (8, 1))), make_federation(4)
    parted = [hold_out(one, 1 / 3) for one in (tiny, large)]
    assert [one.empty for one in parted] == [True, False]
    base = [outputs(one.base, misled) for one in parted]
    left, trained = train_correction(engine, parted, base, PLAN)
    assert (left.best_round, left.valid_loss.tolist(), left.seconds) == (0, [1.0], 0.0)
    for logits, before in zip(left.logits, base[0].logits, strict=True):
        np.testing.assert_array_equal(logits, before)
    (alone,) = train_correction(engine, parted[1:], base[1:], PLAN)
    np.testing.assert_allclose(trained.logits[0], alone.logits[0], rtol=0, atol=1e-9)
    (still,) = train_correction(engine, parted[:1], base[:1], PLAN)
    np.testing.assert_array_equal(still.logits[0], base[0].logits[0])


def test_only_held_out_and_validation_labels_matter():
    parted = hold_out(make_federation(), 1 / 3)
    base = outputs(parted.base, misled)

    def corrected(change):
        clients = [
            replace(c, y=np.where(change(c, held), (c.y + 1) % 3, c.y))
            for c, held in zip(parted.base.clients, parted.held, strict=True)
        ]
        other = Parted(replace(parted.base, clients=clients), parted.held)
        return train_correction(InProcess(), [other], [base], PLAN)[0].logits[0]

    def outside(client, held):
        return ~np.isin(np.arange(client.nodes), [*held, *client.valid])

    def inside(client, held):
        return np.isin(np.arange(client.nodes), held)

    plain = corrected(lambda client, _held: np.zeros(client.nodes, dtype=bool))
    np.testing.assert_array_equal(corrected(outside), plain)
    assert np.abs(corrected(inside) - plain).max() > 1e-3


def test_no_correction_is_zero_but_can_be_left():
    start = no_correction(PLAN, seed=3)
    assert not start.second.any()
    assert not start.second_bias.any()
    assert start.first.any()
    assert start.first.shape == (3, 6)


def test_the_plan_of_the_correction_takes_its_settings_and_the_base_models_rhythm():
    settings = PersonalSettings(
        correction_hidden=5, correction_rounds=7, correction_weight=0.3, correction_alpha=0.2
    )
    base = replace(BASE, model="sage", lr=0.2, local_epochs=2, average=False, batch_size=32)
    plan = correction_plan(base, settings)
    assert (plan.task, plan.hidden, plan.rounds) == ("sets", 5, 7)
    assert (plan.size.weight, plan.size.alpha) == (0.3, 0.2)
    assert (plan.model, plan.lr, plan.local_epochs, plan.average) == ("sage", 0.2, 2, False)
    assert (plan.prior, plan.batch_size) == (None, None)


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("correction_share", 0.0, "correction_share is 0.0; it must lie strictly between 0 and 1."),
        ("correction_share", 1, "correction_share is 1; it must lie strictly between 0 and 1."),
        ("correction_share", "a", "correction_share is 'a'; it must lie strictly"),
        ("correction_alpha", float("nan"), "correction_alpha is nan; it must lie strictly"),
        ("correction_alpha", True, "correction_alpha is True; it must lie strictly"),
        ("correction_hidden", 0, "correction_hidden is 0; it must be a whole number of 1 or more."),
        ("correction_rounds", 1.5, "correction_rounds is 1.5; it must be a whole number"),
        ("correction_weight", -1.0, "correction_weight is -1.0; it must be 0 or a positive"),
        ("correction_weight", float("inf"), "correction_weight is inf; it must be 0 or a positive"),
    ],
)
def test_wrong_settings_are_said_in_a_sentence(setting, value, sentence):
    with pytest.raises(UsageError, match=sentence.replace(".", r"\.")):
        PersonalSettings(**{setting: value})
