"""All carriers compute the same training, to the last digits; PyG's layers are the oracle."""

from concurrent.futures import CancelledError
from dataclasses import replace
from threading import Event
from time import sleep

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedcover.carriers import stacked as carrier
from fedcover.carriers.lockstep import Lockstep
from fedcover.config.names import MODELS
from fedcover.errors import DataError
from fedcover.party.augment import augment
from fedcover.training.plan import Federation, Plan, Prior, inputs, log_prior

from .carried import CARRIERS, largest_difference, loopback, reference, stacked

EXACT = Plan("gcn", 3, hidden=8, dropout=0.0, rounds=5, local_epochs=3, dtype=torch.float64)
EVERY = pytest.mark.parametrize("train", CARRIERS.values(), ids=CARRIERS.keys())


def _into(seen: list[tuple[str, int, int]]):
    return lambda *step: seen.append(step)


def by_all(federation: Federation, plan: Plan):
    """The same training over each carrier: what the oracle gives last."""
    return [train([federation], plan)[0] for train in CARRIERS.values()]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clients", [1, 3, 10])
@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
@pytest.mark.parametrize("batch_size", [None, 4], ids=["full", "batches"])
def test_one_program_equals_one_after_another(
    make_federation, model, clients, average, density, batch_size
):
    federation = make_federation(clients, density)
    plan = replace(EXACT, model=model, average=average, batch_size=batch_size)
    ours, single, theirs = by_all(federation, plan)
    assert largest_difference(ours, theirs) < 1e-9
    assert largest_difference(single, theirs) < 1e-9
    assert ours.trained.best == theirs.trained.best
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clients", [1, 3, 10])
def test_agreement_in_single_precision(make_federation, model, clients):
    federation = make_federation(clients)
    plan = replace(EXACT, model=model, dtype=torch.float32)
    ours, single, theirs = by_all(federation, plan)
    assert largest_difference(ours, theirs) < 1e-5
    assert largest_difference(single, theirs) < 1e-5


def with_generated(federation: Federation) -> Federation:
    """Two generated nodes at every client, one of them linked; no validation nodes."""
    rng = np.random.default_rng(5)
    clients = []
    for client in federation.clients:
        lone = augment(client, rng.normal(size=(2, 40)), np.array([[0, 0, 1], [0, 1, 0]]))
        clients.append(replace(lone, valid=np.array([], dtype=np.int64)))
    return replace(federation, clients=clients)


@pytest.mark.parametrize("clients", [1, 3, 10])
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_link_prediction_is_that_of_pyg(make_federation, clients, density):
    """The oracle takes PyG's own VGAE losses; the clients' models are averaged alike."""
    federation = with_generated(make_federation(clients, density))
    plan = replace(EXACT, task="links", classes=6)
    ours, single, theirs = by_all(federation, plan)
    assert largest_difference(ours, theirs) < 1e-9
    assert largest_difference(single, theirs) < 1e-9
    assert [len(rows) for rows in ours.logits] == [c.own for c in federation.clients]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_generated_edges_may_count_less(make_federation, model, density):
    federation = make_federation(3, density)
    rng, links = np.random.default_rng(5), np.array([[0, 0, 1], [0, 1, 0]])
    clients = [augment(c, rng.normal(size=(2, 40)), links, 0.3) for c in federation.clients]
    plan, lighter = replace(EXACT, model=model), replace(federation, clients=clients)
    ours, single, theirs = by_all(lighter, plan)
    assert largest_difference(ours, theirs) < 1e-9
    assert largest_difference(single, theirs) < 1e-9
    clients = [replace(client, weight=None) for client in clients]
    (plain,) = stacked([replace(federation, clients=clients)], plan)
    assert largest_difference(ours, plain) > 1e-3


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
@pytest.mark.parametrize("batch_size", [None, 4], ids=["full", "batches"])
def test_a_prior_enters_the_logits_of_every_carrier(make_federation, average, batch_size):
    federation = make_federation(3)
    plan = replace(EXACT, prior=Prior(2.0, 0.7), average=average, batch_size=batch_size)
    ours, single, theirs = by_all(federation, plan)
    assert largest_difference(ours, theirs) < 1e-9
    assert largest_difference(single, theirs) < 1e-9
    (plain,) = stacked([federation], replace(plan, prior=None))
    assert largest_difference(ours, plain) > 1e-2


@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_features_of_length_one_are_a_matter_of_training(make_federation, density):
    federation = make_federation(3, density)
    plan = replace(EXACT, unit_features=True)
    ours, single, theirs = by_all(federation, plan)
    assert largest_difference(ours, theirs) < 1e-9
    assert largest_difference(single, theirs) < 1e-9
    client = federation.clients[1]
    rows = inputs(client, plan)
    rows = rows.toarray() if density < 0.5 else rows
    raw = client.x.toarray() if density < 0.5 else client.x
    lengths = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(lengths, (np.linalg.norm(raw, axis=1) > 0).astype(float), rtol=1e-6)
    assert inputs(client, EXACT) is client.x


@pytest.mark.parametrize("batch_size", [None, 4], ids=["full", "batches"])
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_fedprox_holds_local_steps_near_the_shared_model(make_federation, density, batch_size):
    federation = make_federation(3, density)
    plan = replace(EXACT, prox=0.5, batch_size=batch_size)
    ours, single, theirs = by_all(federation, plan)
    assert largest_difference(ours, theirs) < 1e-9
    assert largest_difference(single, theirs) < 1e-9
    (free,) = stacked([federation], replace(plan, prox=0.0))
    assert largest_difference(ours, free) > 1e-3
    alone = replace(plan, average=False)
    (held,), (loose,) = (stacked([federation], p) for p in (alone, replace(alone, prox=0.0)))
    assert largest_difference(held, loose) == 0.0  # a client alone has nothing to be held near


@pytest.mark.parametrize("batch_size", [None, 4], ids=["full", "batches"])
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
def test_weight_decay_is_that_of_torch(make_federation, density, batch_size, average):
    """Also of the weights of a feature that no node has, which only the decay moves."""
    federation = make_federation(3, density)
    clients = [replace(one, x=_without_first_feature(one.x)) for one in federation.clients]
    federation = replace(federation, clients=clients)
    plan = replace(EXACT, weight_decay=0.01, batch_size=batch_size, average=average)
    ours, single, theirs = by_all(federation, plan)
    assert largest_difference(ours, theirs) < 1e-9
    assert largest_difference(single, theirs) < 1e-9
    (free,) = stacked([federation], replace(plan, weight_decay=0.0))
    assert largest_difference(ours, free) > 1e-3
    assert (ours.weights[0].first[0] - free.weights[0].first[0]).abs().max() > 1e-3


def _without_first_feature(x):
    rest = np.arange(x.shape[1]) > 0
    return sp.csr_array(x.multiply(rest)) if sp.issparse(x) else (x * rest).astype(np.float32)


def test_the_prior_is_the_smoothed_mix_of_the_training_labels(make_federation):
    client = replace(
        make_federation(3).clients[1], y=np.array([0] * 6 + [1] * 54), train=np.arange(3, 12)
    )
    # Three nodes of label 0 and six of label 1; three more are spread evenly over three labels.
    expected = 0.5 * np.log(np.array([4, 7, 1]) / 12)
    plan = replace(EXACT, prior=Prior(smoothing=3.0, strength=0.5))
    np.testing.assert_allclose(log_prior(client, plan), expected)
    assert not log_prior(client, EXACT).any()


def test_link_prediction_has_no_prior(make_federation):
    federation = with_generated(make_federation(3))
    plan = replace(EXACT, task="links", classes=6)
    for train in CARRIERS.values():
        (plain,), (same,) = (train([federation], p) for p in (plan, replace(plan, prior=Prior())))
        assert largest_difference(plain, same) == 0.0


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_training_goes_on_from_given_weights(make_federation, average, density):
    federations = [make_federation(k, density, seed) for k, seed in ((3, 1), (10, 2))]
    start = [model.weights[0] for model in stacked(federations, EXACT)]
    plan = replace(EXACT, average=average, rounds=4)
    found = (train(federations, plan, start) for train in CARRIERS.values())
    for mine, single, other in zip(*found, strict=True):
        assert largest_difference(mine, other) < 1e-9
        assert largest_difference(single, other) < 1e-9
        assert mine.trained.best == other.trained.best
        assert len(mine.losses) == 5  # the start's and four more
        np.testing.assert_allclose(mine.losses, other.losses, rtol=1e-9)


@EVERY
def test_a_start_that_no_round_improves_is_kept(make_federation, train):
    federation = make_federation(3)
    (trained,) = train([federation], EXACT)
    plan = replace(EXACT, average=False, lr=5.0, rounds=3)
    (spoilt,) = train([federation], plan, [trained.weights[0]])
    assert spoilt.trained.best == 0
    assert largest_difference(spoilt, trained) < 1e-12


def test_link_prediction_does_not_depend_on_the_stack(make_federation):
    federations = [with_generated(make_federation(k, seed=seed)) for k, seed in ((3, 1), (10, 2))]
    plan = replace(EXACT, task="links", classes=6)
    for federation, one in zip(federations, stacked(federations, plan), strict=True):
        (alone,) = stacked([federation], plan)
        assert largest_difference(alone, one) < 1e-9


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_a_federation_does_not_depend_on_its_stack(make_federation, average, density):
    """Several seeds as one program give what each gives alone, dropout included."""
    federations = [make_federation(k, density, seed) for k, seed in ((3, 1), (10, 2), (1, 3))]
    plan = replace(EXACT, dropout=0.5, average=average, batch_size=8)
    together = stacked(federations, plan)
    for federation, one in zip(federations, together, strict=True):
        (alone,) = stacked([federation], plan)
        assert largest_difference(alone, one) < 1e-9


def test_dropout_changes_training_and_the_seed_repeats_it(make_federation):
    federation = make_federation(3)
    with_dropout = replace(EXACT, dropout=0.5)
    (first,), (again,), (without,) = (
        stacked([federation], plan) for plan in (with_dropout, with_dropout, EXACT)
    )
    assert largest_difference(first, again) == 0.0
    assert largest_difference(first, without) > 1e-3


def test_large_federations_are_trained_one_by_one_if_each_may_end(make_federation, monkeypatch):
    federations = [make_federation(3, seed=seed) for seed in range(3)]
    plan = replace(EXACT, rounds=12, patience=2)
    together = stacked(federations, plan)
    sizes, carry = [], Lockstep.carry

    def counted(self, talks):
        sizes.append(len(talks))
        return carry(self, talks)

    monkeypatch.setattr(carrier, "LARGE", 1)
    monkeypatch.setattr(Lockstep, "carry", counted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    reported = []
    apart = stacked(federations, plan, report=lambda _, done, __: reported.append(done), apart=True)
    assert sizes == [1, 1, 1]
    assert reported == sorted(set(reported))
    assert reported[-1] == plan.rounds
    for one, other in zip(together, apart, strict=True):
        assert largest_difference(one, other) < 1e-9
        assert one.trained.rounds == other.trained.rounds
    sizes.clear()
    stacked(federations, plan)
    assert sum(sizes) == 3
    assert len(sizes) < 3


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
def test_a_federation_out_of_patience_ends_whatever_the_others_do(make_federation, average):
    federations = [make_federation(3, seed=seed) for seed in range(4)]
    plan = replace(EXACT, rounds=40, patience=3, lr=0.003, average=average)
    together = stacked(federations, plan)
    full = stacked(federations, replace(plan, patience=None))
    for federation, ours, whole in zip(federations, together, full, strict=True):
        (alone,) = reference([federation], plan)
        assert ours.trained.rounds == alone.trained.rounds == len(ours.losses)
        assert ours.trained.best == alone.trained.best
        assert largest_difference(ours, alone) < 1e-9
        np.testing.assert_allclose(ours.losses, whole.losses[: ours.trained.rounds], rtol=1e-9)
        assert ours.trained.rounds == min(ours.trained.best + 1 + plan.patience, plan.rounds)
    assert len({ours.trained.rounds for ours in together}) > 1  # each by itself


def test_the_best_round_is_that_of_the_lowest_pooled_validation_loss(make_federation):
    federation = make_federation(10)
    plan = replace(EXACT, rounds=30, lr=0.1)
    (trained,) = stacked([federation], plan)
    assert trained.trained.best == int(np.argmin(trained.losses)) < 29
    (stopped,) = stacked([federation], replace(plan, rounds=trained.trained.best + 1))
    assert largest_difference(trained, stopped) < 1e-12


def test_without_validation_nodes_the_last_round_counts(make_federation):
    federation = make_federation(3)
    clients = [replace(c, valid=np.array([], dtype=np.int64)) for c in federation.clients]
    bare = replace(federation, clients=clients)
    for train in CARRIERS.values():
        (trained,) = train([bare], EXACT)
        assert trained.trained.best == EXACT.rounds - 1
        assert np.isnan(trained.losses).all()


@EVERY
@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
@pytest.mark.parametrize("lr", [1e30, 1e200])
def test_training_that_diverges_is_said_in_a_sentence(make_federation, train, average, lr):
    """Also where weights are numbers still, but no integer of 64 bits."""
    with pytest.raises(DataError, match=r"[Tt]raining diverged: .* scale the features"):
        train([make_federation(3)], replace(EXACT, lr=lr, average=average))


def test_loc_clients_learn_nothing_from_each_other(make_federation):
    federation = make_federation(3)
    plan = replace(EXACT, average=False, rounds=1)
    (together,) = stacked([federation], plan)
    others = replace(
        federation, clients=[federation.clients[0], *make_federation(3, seed=9).clients[1:]]
    )
    (elsewhere,) = stacked([others], plan)
    for a, b in zip(together.weights[0], elsewhere.weights[0], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_rounds_are_reported_as_they_end(make_federation):
    seen = []
    stacked([make_federation(3)], EXACT, report=lambda *step: seen.append(step))
    assert seen == [("train fed", done, 5) for done in (1, 2, 3, 4, 5)]


def test_threads_change_neither_results_nor_the_order_of_reports(make_federation):
    federations = [make_federation(3, seed=s) for s in range(5)]
    before = torch.get_num_threads()
    outcomes, reports = [], []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            seen: list[tuple[str, int, int]] = []
            outcomes.append(stacked(federations, EXACT, report=_into(seen)))
            reports.append([done for _, done, _ in seen])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert reports == [[1, 2, 3, 4, 5]] * 2
    for alone, threaded in zip(*outcomes, strict=True):
        assert largest_difference(alone, threaded) < 1e-9


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def interrupted(make_federation, two_threads):
    """Train two federations for ever, a thread each; says which rounds were reported."""

    def train():
        seen = []

        def interrupt(_stage: str, done: int, _total: int) -> None:
            seen.append(done)
            raise KeyboardInterrupt

        federations = [make_federation(3, seed=s) for s in (1, 2)]
        with pytest.raises(KeyboardInterrupt):
            stacked(federations, replace(EXACT, rounds=10_000_000), report=interrupt)
        return seen

    return train


def test_an_interrupt_ends_all_threads(interrupted):
    assert interrupted() == [1]


def test_the_reason_is_raised_though_a_stopped_thread_ends_first(interrupted, monkeypatch):
    stopped, carry, go_on = Event(), Lockstep.carry, carrier._Steps.go_on

    def told(self):
        try:
            go_on(self)
        except CancelledError:  # also of a thread that has not begun
            stopped.set()
            raise

    def slow_to_fail(self, talks):
        try:
            return carry(self, talks)
        except KeyboardInterrupt:
            assert stopped.wait(60)
            sleep(0.5)  # the main thread looks every 0.1 s
            raise

    monkeypatch.setattr(Lockstep, "carry", slow_to_fail)
    monkeypatch.setattr(carrier._Steps, "go_on", told)
    assert interrupted() == [1]


def test_a_failure_begins_no_stack_that_waits(make_federation, two_threads, monkeypatch):
    begun = []

    def failing(self, talks):
        begun.append(talks)
        raise DataError("the first fails")

    monkeypatch.setattr(Lockstep, "carry", failing)
    monkeypatch.setattr(carrier, "LARGE", 1)
    federations = [make_federation(3, seed=s) for s in range(10)]
    with pytest.raises(DataError, match="the first fails"):
        stacked(federations, replace(EXACT, patience=2), apart=True)
    assert len(begun) <= 2


def test_a_client_without_edges_can_take_part(make_federation):
    federation = make_federation(3)
    lonely = replace(federation.clients[1], edge_index=np.empty((2, 0), dtype=np.int64))
    clients = [federation.clients[0], lonely, federation.clients[2]]
    plan = replace(EXACT, model="sage")
    ours, single, theirs = by_all(replace(federation, clients=clients), plan)
    assert largest_difference(ours, theirs) < 1e-9
    assert largest_difference(single, theirs) < 1e-9


@pytest.mark.parametrize("stride", [2, 3, 10])
@pytest.mark.parametrize("patience", [None, 1])
def test_rounds_that_are_asked_for_at_once_are_the_same_rounds(make_federation, stride, patience):
    federation = make_federation(3)
    plan = replace(EXACT, average=False, rounds=7, lr=0.1, patience=patience)
    (one,), (several,) = (loopback([federation], plan, stride=s) for s in (1, stride))
    assert several.trained == one.trained
    assert largest_difference(one, several) == 0.0
