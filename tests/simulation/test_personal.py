"""Personal recipes in a run: shared work is done once, no label is ruled out."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedcover import conformal, run
from fedcover.algorithm import session
from fedcover.algorithm.fedsage import mend
from fedcover.carriers.loopback import Loopback
from fedcover.config import GenSettings, NeighGenSettings, PersonalSettings, VaeSettings, recipe_of
from fedcover.graphs import Role
from fedcover.party import calibration
from fedcover.plans import plan_of
from fedcover.simulation.repetition import centre, federation, prepare

GEN = GenSettings(
    prototypes=(3,), shares=(1.0,), link_rounds=2, vae=VaeSettings(epochs=10, min_cluster=2)
)
ROUNDS, TUNE_ROUNDS, LOCAL_ROUNDS = 6, 3, 5
PERSONAL = PersonalSettings(tune_rounds=TUNE_ROUNDS, local_rounds=LOCAL_ROUNDS, shrinkage=5.0)
RECIPES = (
    "fed+prox",
    "fed+prior",
    "fed+tuned",
    "fed+mix",
    "gen+prior+mix",
    "fedsage+mix",
    "restored+prior",
    "loc+prior",
    "central+prior",
)


@pytest.fixture(scope="module")
def small(quick):
    """``small(**changes)``: personal recipes, one score and rule, no dropout."""

    def make(**changes):
        settings = {
            "methods": RECIPES,
            "scores": ("lac",),
            "quantiles": ("exact",),
            "alphas": (0.1, 0.3),
            "rounds": ROUNDS,
            "lr": 0.03,
            "dropout": 0.0,
            "gen": GEN,
            "personal": PERSONAL,
        }
        return quick(**(settings | changes))

    return make


@pytest.fixture(scope="module")
def finished(toy, small):
    return run(toy, small())


def logits_of(federation, name):
    """What the recipe says about all nodes, in the graph's order."""
    return federation.gathered([calibration.logits(p, name) for p in federation.parties])


def untimed(finished):
    return finished.results.drop("train_seconds")


# Carriers and files


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_the_same_where_each_party_trains_by_itself(toy, small, finished, recipe):
    config = small()
    for seed in config.seed_range:
        repetition = prepare(toy, config, seed)
        whole = recipe_of(recipe).method.graph == "whole"
        own = (centre if whole else federation)(repetition, config)
        Loopback(own.parties).carry(own.session.prepare())
        outcome = Loopback(own.parties).carry(own.session.train(recipe))
        found = Loopback(own.parties).carry(own.session.calibrate(recipe))
        rows = finished.results.filter(method=recipe, seed=seed)
        q_hats = [one.pooled.q_hat for one in found.thresholds]
        np.testing.assert_allclose(rows["q_hat"], q_hats, rtol=0, atol=1e-4)
        chosen = finished.info["chosen_on_validation"][recipe]
        for choice in ("best_round", "tuned_rounds", "local_round", "weight_decay"):
            assert outcome.chosen.get(choice) == chosen.get(choice, [None, None])[seed], choice
        if "mixture" in chosen:
            weights = [calibration.mixture_weights(p, recipe).tolist() for p in own.parties]
            assert weights == chosen["mixture"][seed]
        sets = finished.sets.filter(method=recipe, seed=seed)
        labels, nodes = sum(tally[:, 2].sum() for tally in found.tallies.values()), len(sets)
        assert abs(sets["size"].sum() - labels) <= 0.02 * nodes


def test_the_parts_of_a_recipe_change_what_it_gives(toy, small):
    """Else the agreement above would be one of recipes that do nothing."""
    methods = (
        "fed", "fed+prox", "fed+prior", "fed+tuned", "fed+mix", "fed+prior+tuned", "fed+prior+mix",
        "fed+prox+prior+mix",
    )  # fmt: skip
    own = replace(PERSONAL, shrinkage=0.0)
    results = run(toy, small(methods=methods, personal=own, seeds=3)).results.filter(alpha=0.3)
    thresholds = {m: tuple(results.filter(method=m)["q_hat"]) for m in methods}
    assert len(set(thresholds.values())) == len(methods)


def test_the_same_recipes_give_the_same_file(toy, small, finished, tmp_path):
    again = run(toy, small())
    assert untimed(again).equals(untimed(finished))
    assert again.sets.equals(finished.sets)
    assert again.ledger.equals(finished.ledger)
    assert again.info | {"seconds": {}} == finished.info | {"seconds": {}}
    first, second = finished.save(tmp_path / "first"), again.save(tmp_path / "second")
    for name in ("groups.csv", "sets.parquet", "ledger.parquet"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_a_recipe_does_not_depend_on_the_others(toy, small, finished):
    for recipe in ("fed+mix", "loc+prior"):
        alone = run(toy, small(methods=(recipe,)))
        assert untimed(alone).equals(untimed(finished).filter(method=recipe))
        assert alone.ledger.equals(finished.ledger.filter(method=recipe))


def test_a_seed_of_a_mixture_does_not_depend_on_the_others(toy, small):
    settings = {"methods": ("fed+prior+mix",), "scores": ("lac", "slac")}
    several = run(toy, small(**settings, seeds=3)).results.filter(seed=1)
    alone = run(toy, small(**settings, seeds=1, first_seed=1)).results
    np.testing.assert_allclose(several["q_hat"], alone["q_hat"], rtol=0, atol=1e-4)


# What recipes share


@pytest.fixture
def trained(toy, small, programs):
    """``trained(*methods)``: of each training whether it averages, has a prior, how many rounds it
    may take, and whether it goes on from another."""

    def trained(*methods):
        run(toy, small(methods=methods, seeds=1))
        return [(p.average, p.prior is not None, p.rounds, started) for p, started in programs]

    return trained


def test_what_recipes_have_in_common_is_trained_once(trained):
    asked = trained("fed", "fed+tuned", "fed+mix", "fed+prior+mix", "fed+prior", "fed+prior+tuned")
    averaged, alone = True, False
    assert asked == [
        (averaged, False, ROUNDS, False),  # fed
        (alone, False, TUNE_ROUNDS, True),  # fed+tuned goes on from it
        (alone, False, LOCAL_ROUNDS, False),  # fed+mix adds the local model, which has no prior
        (averaged, True, ROUNDS, False),  # fed+prior+mix: a shared and a tuned model of its own
        (alone, True, TUNE_ROUNDS, True),
    ]


def test_a_mixture_trains_what_it_needs_without_being_asked_for_its_parts(trained):
    assert trained("fed+prior+mix") == [
        (True, True, ROUNDS, False),
        (False, True, TUNE_ROUNDS, True),
        (False, False, LOCAL_ROUNDS, False),
    ]


def test_gens_graphs_depend_on_the_prior_and_so_does_its_local_model(trained):
    """Only the prototypes and the VGAE, which know no model, are made once."""
    links = (True, False, GEN.link_rounds, False)
    asked = trained("gen+mix", "gen+prior+mix")
    assert asked == [
        links,
        (True, False, ROUNDS, False),
        (False, False, TUNE_ROUNDS, True),
        (False, False, LOCAL_ROUNDS, False),
        (True, True, ROUNDS, False),
        (False, True, TUNE_ROUNDS, True),
        (False, False, LOCAL_ROUNDS, False),
    ]


def test_neighgen_is_trained_once_for_all_recipes(toy, small, monkeypatch):
    """It knows nothing of a prior, of FedProx or of what is tuned after it."""
    mended = []

    def counted(*settings):
        mended.append(settings)
        return mend(*settings)

    monkeypatch.setattr(session, "mend", counted)
    methods = ("fedsage+", "fedsage++prior", "fedsage++prox+prior", "fedsage++tuned", "fedsage")
    neighgen = NeighGenSettings(warm_up=2, rounds=2, local_epochs=1)
    finished = run(toy, small(methods=methods, rounds=2, neighgen=neighgen))
    assert len(mended) == 2  # once a seed
    sent = [finished.info["bytes_by_kind"][method] for method in methods]
    first, *others = ([seed.get("generators") for seed in seeds] for seeds in sent)
    assert others == [first, first, first, [None, None]]  # each pays for it as if alone
    assert all(seed["up"] > 0 for seed in first)


def test_tuning_starts_from_the_shared_model_and_keeps_it_where_it_does_no_good(
    toy, small, simulate, monkeypatch
):
    """Tuned at a learning rate that spoils everything: the shared model stays."""

    def spoilt(config, classes, part):
        plan = plan_of(config, classes, part)
        return replace(plan, lr=50.0) if part.endswith("/tuned") else plan

    monkeypatch.setattr(session, "plan_of", spoilt)
    simulation = simulate(toy, small(methods=("fed", "fed+tuned"), seeds=1))
    (federation,), _ = simulation.train("fed")
    _, (outcome,) = simulation.train("fed+tuned")
    assert outcome.chosen["tuned_rounds"] == 0
    tuned = logits_of(federation, "fed+tuned")
    assert np.array_equal(tuned, logits_of(federation, "fed"))


# A mixture is made of its models


@pytest.mark.parametrize("shrinkage", [0.0, 5.0, np.inf])
def test_the_mixture_is_that_of_the_shared_the_tuned_and_the_local_model(
    toy, small, simulate, shrinkage
):
    config = small(seeds=1, rounds=12, personal=replace(PERSONAL, shrinkage=shrinkage))
    (federation,), _ = simulate(toy, config).train("fed+mix")
    repetition = federation.repetition
    y, valid = toy.y.numpy(), repetition.roles == Role.VALID
    probs = []
    for kind in ("shared", "tuned", "local"):
        part = recipe_of("fed+mix").models[kind]
        logits = federation.gathered([party.logits(part) for party in federation.parties])
        temperature = conformal.fit_temperature(logits[valid], y[valid])
        probs.append(conformal.softmax(logits, temperature))
    mixture = [calibration.mixture_weights(party, "fed+mix") for party in federation.parties]
    weights = np.stack(mixture)[repetition.partition.client]
    expected = sum(w[:, None] * p for w, p in zip(weights.T, probs, strict=True))
    np.testing.assert_allclose(np.exp(logits_of(federation, "fed+mix")), expected, rtol=1e-5)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    alike = len({tuple(row) for row in mixture}) == 1
    if shrinkage != 5.0:  # where either may be
        assert alike == (shrinkage == np.inf)


# Labels that a client has never trained on


@pytest.fixture(scope="module")
def lacking(make_toy):
    """Client p calibrates and tests on nodes with the label c, but trains and validates on none."""
    nodes = 240
    rng = np.random.default_rng(5)
    y, client = np.arange(nodes) % 3, rng.permutation(np.arange(nodes) % 2)
    roles = np.empty(nodes, dtype=np.int8)
    for k in range(2):
        for label in range(3):
            own = np.flatnonzero((client == k) & (y == label))
            kinds = (Role.CALIB, Role.TEST) if (k, label) == (0, 2) else tuple(Role)
            roles[own] = np.resize(np.array(kinds), len(own))
    return make_toy(nodes, client=client, client_names=["p", "q"], split=roles)


def missing(graph):
    """Client p's test nodes with the label c."""
    client, y, roles = graph.client.numpy(), graph.y.numpy(), graph.split.numpy()
    assert not ((client == 0) & (y == 2) & (roles <= Role.VALID)).any()
    return np.flatnonzero((client == 0) & (y == 2) & (roles == Role.TEST))


LONG = PersonalSettings(tune_rounds=40, tune_epochs=3, local_rounds=60, shrinkage=0.0)


@pytest.mark.parametrize(
    "name", ["fed+prior", "fed+prior+tuned", "fed+mix", "fed+prior+mix", "loc+prior"]
)
def test_no_label_has_probability_zero_at_a_client_that_never_saw_it(
    lacking, small, simulate, name
):
    config = small(clients=2, partition="given", seeds=1, methods=(name,), rounds=60, personal=LONG)
    (federation,), _ = simulate(lacking, config).train(name)
    final = logits_of(federation, name)
    assert final.dtype == np.float32
    nodes = np.flatnonzero(lacking.client.numpy() == 0)
    kinds = [
        federation.gathered([party.logits(part) for party in federation.parties])
        for part in recipe_of(name).models.values()
    ]
    for logits in [final, *kinds]:
        assert np.isfinite(logits).all()
        assert (conformal.softmax(logits) > 0).all()
        assert (conformal.softmax(logits).astype(np.float32) > 0).all()
    # The case is a real one: the client hardly believes in the label.
    assert np.median(conformal.softmax(final)[nodes, 2]) < 0.2


@pytest.mark.parametrize("name", ["fed+prior", "fed+prior+mix", "loc+prior"])
def test_its_sets_can_hold_that_label(lacking, small, name):
    config = small(
        clients=2, partition="given", seeds=1, methods=(name,), rounds=60, personal=LONG,
        alphas=(0.1,), scores=("lac", "aps", "dlac"),
    )  # fmt: skip
    finished = run(lacking, config)
    ids = [f"n{i}" for i in missing(lacking)]
    for score in config.scores:
        (row,) = finished.results.filter(score=score).iter_rows(named=True)
        assert row["q_hat"] < 1  # a threshold that excludes labels
        sets = finished.sets.filter(pl.col("client") == "p", pl.col("score") == score)
        assert 0 < sets["set"].list.contains("c").mean() < 1
        own = sets.filter(pl.col("node").is_in(ids))
        assert len(own) == len(ids)
        assert own["set"].list.contains("c").any()


def test_the_strength_and_the_smoothing_reach_the_models(lacking, small, simulate):
    """The stronger the prior, the less a client believes in a label that it never trained on."""
    believed = []
    for strength, smoothing in ((0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (1.0, 0.01)):
        personal = PersonalSettings(prior_strength=strength, prior_smoothing=smoothing)
        config = small(clients=2, partition="given", seeds=1, rounds=20, personal=personal)
        simulation = simulate(lacking, config)
        (federation,), _ = simulation.train("fed+prior")
        own = lacking.client.numpy() == 0
        logits = logits_of(federation, "fed+prior")
        believed.append(conformal.softmax(logits)[own, 2].mean())
        if strength == 0:
            simulation.train("fed")
            assert np.array_equal(logits_of(federation, "fed"), logits)
    assert believed == sorted(believed, reverse=True)
    assert believed[0] > 1.5 * believed[2]


def test_without_validation_nodes_the_mixture_is_the_shared_model(toy, small):
    config = small(valid=0.0, seeds=1, methods=("fed", "fed+mix"), temperature="none")
    finished = run(toy, config)
    assert finished.info["chosen_on_validation"]["fed+mix"]["mixture"] == [[[1, 0, 0]] * 3]
    fed, mix = (finished.results.filter(method=m) for m in ("fed", "fed+mix"))
    np.testing.assert_allclose(fed["q_hat"], mix["q_hat"], rtol=1e-5)
    np.testing.assert_allclose(fed["set_size"], mix["set_size"], atol=0.02)
