"""The contract of an engine: all of them compute the same training, to the last digits."""

from concurrent.futures import CancelledError
from dataclasses import replace
from threading import Event
from time import sleep

import numpy as np
import pytest
import torch
from fedcover.federation import Federation, InProcess, Plan, Prior, Reference, Trained, inprocess
from fedcover.federation.validation import Best

from fedcover.config.names import MODELS
from fedcover.errors import DataError
from fedcover.party.augment import augment
from fedcover.training.plan import inputs, log_prior
from fedcover.training.stack import Parameters

EXACT = Plan("gcn", 3, hidden=8, dropout=0.0, rounds=5, local_epochs=3, dtype=torch.float64)


def largest_difference(ours: Trained, theirs: Trained) -> float:
    pairs = [
        (a, b)
        for mine, other in zip(ours.weights, theirs.weights, strict=True)
        for a, b in zip(mine.tensors(), other.tensors(), strict=True)
    ]
    weights = max(float((a - b).abs().max()) for a, b in pairs)
    logits = max(
        float(np.abs(a - b).max()) for a, b in zip(ours.logits, theirs.logits, strict=True)
    )
    return max(weights, logits)


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
    (ours,), (theirs,) = (engine.train([federation], plan) for engine in (InProcess(), Reference()))
    assert largest_difference(ours, theirs) < 1e-9
    assert ours.best_round == theirs.best_round
    np.testing.assert_allclose(ours.valid_loss, theirs.valid_loss, rtol=1e-9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clients", [1, 3, 10])
def test_agreement_in_single_precision(make_federation, model, clients):
    federation = make_federation(clients)
    plan = replace(EXACT, model=model, dtype=torch.float32)
    (ours,), (theirs,) = (engine.train([federation], plan) for engine in (InProcess(), Reference()))
    assert largest_difference(ours, theirs) < 1e-5


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
    (ours,), (theirs,) = (engine.train([federation], plan) for engine in (InProcess(), Reference()))
    assert largest_difference(ours, theirs) < 1e-9
    assert [len(rows) for rows in ours.logits] == [c.nodes for c in federation.clients]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_generated_edges_may_count_less(make_federation, model, density):
    federation = make_federation(3, density)
    rng, links = np.random.default_rng(5), np.array([[0, 0, 1], [0, 1, 0]])
    clients = [augment(c, rng.normal(size=(2, 40)), links, 0.3) for c in federation.clients]
    plan, lighter = replace(EXACT, model=model), replace(federation, clients=clients)
    (ours,), (theirs,) = (engine.train([lighter], plan) for engine in (InProcess(), Reference()))
    assert largest_difference(ours, theirs) < 1e-9
    clients = [replace(client, generated_weight=1.0) for client in clients]
    (plain,) = InProcess().train([replace(federation, clients=clients)], plan)
    assert largest_difference(ours, plain) > 1e-3


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
@pytest.mark.parametrize("batch_size", [None, 4], ids=["full", "batches"])
def test_a_prior_enters_the_logits_in_every_engine(make_federation, average, batch_size):
    federation = make_federation(3)
    plan = replace(EXACT, prior=Prior(2.0, 0.7), average=average, batch_size=batch_size)
    (ours,), (theirs,) = (engine.train([federation], plan) for engine in (InProcess(), Reference()))
    assert largest_difference(ours, theirs) < 1e-9
    (plain,) = InProcess().train([federation], replace(plan, prior=None))
    assert largest_difference(ours, plain) > 1e-2


@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_features_of_length_one_are_the_engines_affair(make_federation, density):
    federation = make_federation(3, density)
    plan = replace(EXACT, unit_features=True)
    (ours,), (theirs,) = (engine.train([federation], plan) for engine in (InProcess(), Reference()))
    assert largest_difference(ours, theirs) < 1e-9
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
    (ours,), (theirs,) = (engine.train([federation], plan) for engine in (InProcess(), Reference()))
    assert largest_difference(ours, theirs) < 1e-9
    (free,) = InProcess().train([federation], replace(plan, prox=0.0))
    assert largest_difference(ours, free) > 1e-3
    alone = replace(plan, average=False)
    (held,), (loose,) = (
        InProcess().train([federation], p) for p in (alone, replace(alone, prox=0.0))
    )
    assert largest_difference(held, loose) == 0.0  # a client alone has nothing to be held near


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
    for engine in (InProcess(), Reference()):
        (plain,), (same,) = (
            engine.train([federation], p) for p in (plan, replace(plan, prior=Prior()))
        )
        assert largest_difference(plain, same) == 0.0


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_training_goes_on_from_given_weights(make_federation, average, density):
    federations = [make_federation(k, density, seed) for k, seed in ((3, 1), (10, 2))]
    start = [model.weights[0] for model in InProcess().train(federations, EXACT)]
    plan = replace(EXACT, average=average, rounds=4)
    ours, theirs = (e.train(federations, plan, start=start) for e in (InProcess(), Reference()))
    for mine, other in zip(ours, theirs, strict=True):
        assert largest_difference(mine, other) < 1e-9
        assert mine.best_round == other.best_round
        assert len(mine.valid_loss) == 5  # the start's and four more
        np.testing.assert_allclose(mine.valid_loss, other.valid_loss, rtol=1e-9)


@pytest.mark.parametrize("engine", [InProcess(), Reference()], ids=["inprocess", "reference"])
def test_a_start_that_no_round_improves_is_kept(make_federation, engine):
    federation = make_federation(3)
    (trained,) = engine.train([federation], EXACT)
    plan = replace(EXACT, average=False, lr=5.0, rounds=3)
    (spoilt,) = engine.train([federation], plan, start=[trained.weights[0]])
    assert spoilt.best_round == 0
    assert largest_difference(spoilt, trained) < 1e-12


def test_link_prediction_does_not_depend_on_the_stack(make_federation):
    federations = [with_generated(make_federation(k, seed=seed)) for k, seed in ((3, 1), (10, 2))]
    plan = replace(EXACT, task="links", classes=6)
    for federation, stacked in zip(federations, InProcess().train(federations, plan), strict=True):
        (alone,) = InProcess().train([federation], plan)
        assert largest_difference(alone, stacked) < 1e-9


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_a_federation_does_not_depend_on_its_stack(make_federation, average, density):
    """Several seeds as one program give what each gives alone, dropout included."""
    federations = [make_federation(k, density, seed) for k, seed in ((3, 1), (10, 2), (1, 3))]
    plan = replace(EXACT, dropout=0.5, average=average, batch_size=8)
    together = InProcess().train(federations, plan)
    for federation, stacked in zip(federations, together, strict=True):
        (alone,) = InProcess().train([federation], plan)
        assert largest_difference(alone, stacked) < 1e-9


def test_dropout_changes_training_and_the_seed_repeats_it(make_federation):
    federation = make_federation(3)
    with_dropout = replace(EXACT, dropout=0.5)
    (first,), (again,), (without,) = (
        InProcess().train([federation], plan) for plan in (with_dropout, with_dropout, EXACT)
    )
    assert largest_difference(first, again) == 0.0
    assert largest_difference(first, without) > 1e-3


def test_large_federations_are_trained_one_by_one_if_each_may_end(make_federation, monkeypatch):
    federations = [make_federation(3, seed=seed) for seed in range(3)]
    plan = replace(EXACT, rounds=12, patience=2)
    together = InProcess().train(federations, plan)
    sizes, train = [], inprocess.train_stack

    def counted(stack, *rest):
        sizes.append(len(stack))
        return train(stack, *rest)

    monkeypatch.setattr(inprocess, "LARGE", 1)
    monkeypatch.setattr(inprocess, "train_stack", counted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    reported = []
    apart = InProcess().train(federations, plan, on_round=reported.append)
    assert sizes == [1, 1, 1]
    assert reported == sorted(set(reported))
    assert reported[-1] == plan.rounds
    for one, other in zip(together, apart, strict=True):
        assert largest_difference(one, other) < 1e-9
        assert one.rounds == other.rounds
    sizes.clear()
    InProcess().train(federations, replace(plan, patience=None))
    assert sum(sizes) == 3
    assert len(sizes) < 3  # without patience there is nothing to gain


@pytest.mark.parametrize("average", [True, False], ids=["fed", "loc"])
def test_a_federation_out_of_patience_ends_whatever_the_others_do(make_federation, average):
    federations = [make_federation(3, seed=seed) for seed in range(4)]
    plan = replace(EXACT, rounds=40, patience=3, lr=0.003, average=average)
    together = InProcess().train(federations, plan)
    full = Reference().train(federations, replace(plan, patience=None))
    for federation, ours, whole in zip(federations, together, full, strict=True):
        (alone,) = Reference().train([federation], plan)
        assert ours.rounds == alone.rounds == len(ours.valid_loss)
        assert ours.best_round == alone.best_round
        assert largest_difference(ours, alone) < 1e-9
        np.testing.assert_allclose(ours.valid_loss, whole.valid_loss[: ours.rounds], rtol=1e-9)
        assert ours.rounds == min(ours.best_round + 1 + plan.patience, plan.rounds)
    assert len({ours.rounds for ours in together}) > 1  # else the stack would decide for all


def test_the_best_round_is_that_of_the_lowest_pooled_validation_loss(make_federation):
    federation = make_federation(10)
    plan = replace(EXACT, rounds=30, lr=0.1)
    (trained,) = InProcess().train([federation], plan)
    assert trained.best_round == int(np.argmin(trained.valid_loss)) < 29
    (stopped,) = InProcess().train([federation], replace(plan, rounds=trained.best_round + 1))
    assert largest_difference(trained, stopped) < 1e-12


def test_without_validation_nodes_the_last_round_counts(make_federation):
    federation = make_federation(3)
    clients = [replace(c, valid=np.array([], dtype=np.int64)) for c in federation.clients]
    bare = replace(federation, clients=clients)
    for engine in (InProcess(), Reference()):
        (trained,) = engine.train([bare], EXACT)
        assert trained.best_round == EXACT.rounds - 1
        assert np.isnan(trained.valid_loss).all()


@pytest.mark.parametrize("engine", [InProcess(), Reference()], ids=["inprocess", "reference"])
def test_training_that_diverges_is_said_in_a_sentence(make_federation, engine):
    with pytest.raises(DataError, match=r"Training diverged: .* scale the features"):
        engine.train([make_federation(3)], replace(EXACT, lr=1e200))


def test_a_diverged_round_is_never_the_best():
    start = Parameters(*(torch.zeros(1) for _ in range(4)))
    best = Best(start, [torch.zeros(1, dtype=torch.int64)] * 4, np.array([True]), None)
    for round_, loss in enumerate([3.0, 2.0, np.nan, np.nan]):
        best.update(np.array([loss]), Parameters(*(torch.full((1,), round_) for _ in range(4))))
    assert best.round.tolist() == [1]
    assert best.kept.first.item() == 1


def test_loc_clients_learn_nothing_from_each_other(make_federation):
    federation = make_federation(3)
    plan = replace(EXACT, average=False, rounds=1)
    (together,) = InProcess().train([federation], plan)
    others = replace(
        federation, clients=[federation.clients[0], *make_federation(3, seed=9).clients[1:]]
    )
    (elsewhere,) = InProcess().train([others], plan)
    for a, b in zip(together.weights[0].tensors(), elsewhere.weights[0].tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", [InProcess(), Reference()], ids=["inprocess", "reference"])
def test_rounds_are_reported_as_they_end(make_federation, engine):
    seen: list[int] = []
    engine.train([make_federation(3)], EXACT, on_round=seen.append)
    assert seen == [1, 2, 3, 4, 5]


def test_threads_change_neither_results_nor_the_order_of_reports(make_federation):
    federations = [make_federation(3, seed=s) for s in range(5)]
    before = torch.get_num_threads()
    outcomes, reports = [], []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            seen: list[int] = []
            outcomes.append(InProcess().train(federations, EXACT, on_round=seen.append))
            reports.append(seen)
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

        def interrupt(done: int) -> None:
            seen.append(done)
            raise KeyboardInterrupt

        federations = [make_federation(3, seed=s) for s in (1, 2)]
        with pytest.raises(KeyboardInterrupt):
            InProcess().train(federations, replace(EXACT, rounds=10_000_000), on_round=interrupt)
        return seen

    return train


def test_an_interrupt_ends_all_threads(interrupted):
    assert interrupted() == [1]


def test_the_reason_is_raised_though_a_stopped_thread_ends_first(interrupted, monkeypatch):
    stopped, train_one = Event(), inprocess._train_one

    def slow_to_fail(*arguments):
        try:
            return train_one(*arguments)
        except CancelledError:
            stopped.set()
            raise
        except KeyboardInterrupt:
            assert stopped.wait(60)
            sleep(0.5)  # the main thread looks every 0.1 s
            raise

    monkeypatch.setattr(inprocess, "_train_one", slow_to_fail)
    assert interrupted() == [1]


def test_a_failure_begins_no_stack_that_waits(make_federation, two_threads, monkeypatch):
    begun = []

    def failing(stack, *_):
        begun.append(stack)
        raise DataError("the first fails")

    monkeypatch.setattr(inprocess, "train_stack", failing)
    monkeypatch.setattr(inprocess, "LARGE", 1)
    federations = [make_federation(3, seed=s) for s in range(10)]
    with pytest.raises(DataError, match="the first fails"):
        InProcess().train(federations, replace(EXACT, patience=2))
    assert len(begun) <= 2


def test_a_client_without_edges_can_take_part(make_federation):
    federation = make_federation(3)
    lonely = replace(federation.clients[1], edge_index=np.empty((2, 0), dtype=np.int64))
    clients = [federation.clients[0], lonely, federation.clients[2]]
    plan = replace(EXACT, model="sage")
    (ours,), (theirs,) = (
        engine.train([replace(federation, clients=clients)], plan)
        for engine in (InProcess(), Reference())
    )
    assert largest_difference(ours, theirs) < 1e-9
