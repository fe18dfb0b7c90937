"""One repetition judged by loops over nodes and re-splits, from random logits."""

from fractions import Fraction
from math import ceil

import numpy as np
import polars as pl
import pytest

import fedcover
from fedcover import Config, UsageError, conformal
from fedcover.graphs import Role
from fedcover.ledger import kind_of
from fedcover.report.summary import summarise
from fedcover.simulation.evaluation import Judge
from fedcover.simulation.repetition import prepare

ALPHA = 0.2


def judge(graph, **changes):
    settings = {
        "clients": 3,
        "scores": ("lac",),
        "alphas": (ALPHA,),
        "resplits": 6,
        "temperature": "none",
    }
    config = Config(**(settings | changes))
    return Judge(prepare(graph, config, seed=0), config)


@pytest.fixture
def evaluate(given_outputs):
    """``evaluate(judge, logits)``: what a judge says of a model with these outputs."""

    def evaluate(own, logits):
        return own.evaluate(*given_outputs(own.repetition, own.config, logits))

    return evaluate


@pytest.fixture
def logits(toy):
    rng = np.random.default_rng(1)
    return (rng.normal(size=(120, 3)) + 1.5 * np.eye(3)[toy.y]).astype(np.float32)


def by_hand(own, logits):
    """Coverage, sizes and so on of LAC under Theorem 1's rank, re-split by re-split."""
    probs = conformal.softmax(logits)
    scores = (1 - probs).astype(np.float32)
    client, y = own.repetition.partition.client, own.y
    found = []
    for mask in own.is_calibration:
        calibration, test = own.pool[mask], own.pool[~mask]
        true = sorted(scores[i, y[i]] for i in calibration)
        q_hat = true[ceil((1 - Fraction(str(ALPHA))) * (len(calibration) + 3)) - 1]
        sets = {i: {c for c in range(3) if scores[i, c] <= q_hat} for i in test}
        hit = {i: y[i] in sets[i] for i in test}
        found.append(
            {
                "coverage": np.mean([hit[i] for i in test]),
                "set_size": np.mean([len(sets[i]) for i in test]),
                "singleton_rate": np.mean([len(sets[i]) == 1 for i in test]),
                "empty_rate": np.mean([len(sets[i]) == 0 for i in test]),
                "client": [np.mean([hit[i] for i in test if client[i] == k]) for k in range(3)],
                "class": [np.mean([hit[i] for i in test if y[i] == c]) for c in range(3)],
            }
        )
    means = {key: np.mean([row[key] for row in found], axis=0) for key in found[0]}
    means["coverage_sd"] = np.std([row["coverage"] for row in found], ddof=1)
    means["min_client_coverage"] = means.pop("client").min()
    means["class_coverage_gap"] = (1 - ALPHA) - means.pop("class").min()
    means["accuracy"] = np.mean([probs[i].argmax() == y[i] for i in own.pool])
    return means


def test_a_row_is_the_mean_over_resplits_counted_by_hand(toy, logits, evaluate):
    own = judge(toy, quantiles=("theorem1",))
    outcome = evaluate(own, logits)
    expected = by_hand(own, logits)
    spread = expected.pop("coverage_sd")
    (row,) = outcome.results
    assert 0 < expected["empty_rate"] < expected["singleton_rate"]  # the logits make a real case
    assert {key: row[key] for key in expected} == pytest.approx(expected)
    assert next(g for g in outcome.groups if g["kind"] == "all")["coverage_sd"] == pytest.approx(
        spread
    )


def test_only_calibration_and_test_nodes_are_judged(toy, logits, evaluate):
    own = judge(toy)
    roles = own.repetition.roles
    assert {Role.TRAIN, Role.VALID} <= set(roles)
    judged = [i for i, role in enumerate(roles) if role in (Role.CALIB, Role.TEST)]
    assert own.pool.tolist() == judged
    total = next(g for g in evaluate(own, logits).groups if g["kind"] == "all")
    assert total["n_test"] == (roles == Role.TEST).sum()


def test_every_resplit_keeps_each_clients_number_of_calibration_nodes(toy):
    own = judge(toy)
    roles, client = own.repetition.roles, own.repetition.partition.client
    expected = np.bincount(client[roles == Role.CALIB], minlength=3).tolist()
    for mask in own.is_calibration:
        assert np.bincount(own.client[mask], minlength=3).tolist() == expected
    assert len({mask.tobytes() for mask in own.is_calibration}) == 6


def test_a_seed_draws_its_own_u_and_resplits(make_toy):
    client, roles = np.arange(120) % 3, np.arange(120) // 3 % 4
    graph = make_toy(client=client, client_names=["p", "q", "r"], split=roles)
    config = Config(clients=3, partition="given", resplits=6)
    first, again, other = (Judge(prepare(graph, config, seed), config) for seed in (0, 0, 1))
    assert np.array_equal(first.pool, other.pool)
    assert np.array_equal(again.repetition.u, first.repetition.u)
    assert np.array_equal(again.is_calibration, first.is_calibration)
    assert not np.isclose(other.repetition.u, first.repetition.u).any()
    assert not np.array_equal(other.is_calibration, first.is_calibration)


@pytest.mark.parametrize("temperature", ["pooled", "averaged"])
def test_the_temperature_shapes_the_scores(toy, logits, given_outputs, evaluate, temperature):
    own = judge(toy, temperature=temperature)
    federation, outcome = given_outputs(own.repetition, own.config, 6 * logits)
    fitted = outcome.calibrated.temperature
    assert fitted > 1.5  # logits six times too large want to be cooled
    cooled = evaluate(judge(toy), 6 * logits / np.float32(fitted))
    assert own.evaluate(federation, outcome).results[0]["q_hat"] == pytest.approx(
        cooled.results[0]["q_hat"], abs=1e-6
    )


def test_the_primary_split_gives_q_hat_and_the_sets(toy, logits, evaluate):
    own = judge(toy, quantiles=("theorem1",))
    outcome = evaluate(own, logits)
    scores = (1 - conformal.softmax(logits)).astype(np.float32)
    calib = np.flatnonzero(own.repetition.roles == Role.CALIB)
    rank = ceil((1 - Fraction(str(ALPHA))) * (len(calib) + 3))
    q_hat = np.sort(scores[calib, own.y[calib]])[rank - 1]
    assert outcome.results[0]["q_hat"] == q_hat
    assert outcome.results[0]["n_calibration"] == len(calib)
    names = np.array(toy.label_names)
    for row in outcome.sets[0].iter_rows(named=True):
        node = int(row["node"].removeprefix("n"))
        assert own.repetition.roles[node] == Role.TEST
        assert row["set"] == names[scores[node] <= q_hat].tolist()
        assert row["label"] == names[own.y[node]]
        assert row["client"] == str(own.repetition.partition.client[node])


def test_groups_partition_the_test_nodes(toy, logits, evaluate):
    outcome = evaluate(judge(toy), logits)
    groups = pl.DataFrame(outcome.groups)
    total = groups.filter(kind="all").row(0, named=True)
    for kind in ("client", "class", "degree", "position", "size"):
        own = groups.filter(kind=kind)
        assert own["group"].is_unique().all()
        assert own["n_test"].sum() == pytest.approx(total["n_test"])
    # Sizes vary from re-split to re-split, clients' test nodes do not: there the means add up.
    own = groups.filter(kind="client")
    assert (own["n_test"] * own["coverage"]).sum() == pytest.approx(
        total["n_test"] * total["coverage"]
    )


def test_degrees_count_the_edges_that_a_client_sees(make_toy):
    graph = make_toy(12, edges=np.array([[0, 0, 0, 1, 1, 3], [1, 2, 3, 4, 5, 9]]))
    graph.client = (graph.y * 0).clone()
    graph.client[3:] = 1
    graph.client_names = ["p", "q"]
    config = Config(clients=2, partition="given", resplits=1)
    own = Judge(prepare(graph, config, 0), config)
    own.repetition.roles[:] = np.repeat([Role.CALIB, Role.TEST], 6)
    own = Judge(own.repetition, config)
    # 0: 1, 2 (3 is cut off); 1: 0 (4, 5 are cut off); 2: 0; 3: 9 (0 is cut off); 9: 3.
    assert [own.groups["degree"][i] for i in (0, 1, 2, 3, 4, 9)] == [2, 1, 1, 1, 0, 1]
    assert np.flatnonzero(own.groups["position"]).tolist() == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_without_empty_sets_the_top_label_joins_and_nothing_else_changes(
    toy, logits, score, evaluate
):
    kept = evaluate(judge(toy, scores=(score,), alphas=(0.6,)), logits)
    filled = evaluate(judge(toy, scores=(score,), alphas=(0.6,), empty_sets=False), logits)
    assert kept.results[0]["empty_rate"] > 0
    assert filled.results[0]["empty_rate"] == 0
    assert filled.results[0]["q_hat"] == kept.results[0]["q_hat"]
    assert filled.results[0]["coverage"] >= kept.results[0]["coverage"]
    rows = (outcome.sets[0].iter_rows(named=True) for outcome in (kept, filled))
    for before, after in zip(*rows, strict=True):
        node = int(before["node"].removeprefix("n"))
        top = toy.label_names[logits[node].argmax()]
        assert set(after["set"]) == {*before["set"], top}
        assert after["size"] == len(after["set"])
        assert after["covered"] == (after["label"] in after["set"])


def test_sets_are_nested_in_alpha(toy, logits, evaluate):
    scores = ("aps", "aps-det", "raps", "lac")
    outcome = evaluate(judge(toy, scores=scores, alphas=(0.1, 0.3)), logits)
    for wide, narrow in zip(outcome.sets[::2], outcome.sets[1::2], strict=True):
        assert all(
            set(small) <= set(large)
            for small, large in zip(narrow["set"], wide["set"], strict=True)
        )


def test_the_ledger_hears_counts_and_temperatures_only(toy, logits, given_outputs):
    own = judge(toy, scores=("raps",), temperature="pooled")
    federation, _ = given_outputs(own.repetition, own.config, logits)
    ledger = federation.carried.ledger
    assert {kind_of(entry.part) for entry in ledger} == {"temperature", "raps", "quantile", "sets"}
    quantile = [e for e in ledger if e.verb == "quantile" and e.direction == "up"]
    assert [(e.party, e.round, e.rounds, e.shape) for e in quantile] == [
        (k, 0, 4, (256,)) for k in range(3)
    ]
    counted = [e for e in ledger if e.verb == "sets" and e.direction == "up"]
    assert {(e.array, e.shape) for e in counted} == {("tally", (1, 5)), ("correct", (1,))}


# Clients whose share of the test nodes is not that of their calibration nodes


def skewed(make_toy, *, hard_calibrates=60):
    """An own split: calibration nodes mostly at an easy client, test nodes mostly at a hard one.

    Features tell the labels of the easy client; those of the hard one are half drawn at random.
    """
    counts = [(40, 10, 150, 20), (20, 10, hard_calibrates, 150)]
    client = np.repeat([0, 1], [sum(c) for c in counts])
    roles = np.concatenate([np.repeat(np.arange(4), c) for c in counts])
    nodes = len(client)
    rng, told = np.random.default_rng(3), np.arange(nodes) % 3
    y = np.where((client == 1) & (rng.random(nodes) < 0.5), rng.integers(0, 3, nodes), told)
    x = rng.normal(size=(nodes, 6)) + 3 * np.eye(3, 6)[told]
    return make_toy(nodes, x=x, y=y, client=client, client_names=["easy", "hard"], split=roles)


def run_skewed(graph, **changes):
    settings = {
        "partition": "given",
        "methods": ("fed",),
        "scores": ("lac", "aps"),
        "quantiles": ("theorem1", "exact"),
        "alphas": (0.1, 0.2),
        "seeds": 2,
        "rounds": 15,
        "hidden": 8,
        "temperature": "none",
    }
    return fedcover.run(graph, Config(**(settings | changes)))


def test_exact_covers_test_nodes_that_a_split_column_skews(make_toy):
    finished = run_skewed(skewed(make_toy))
    table = summarise(finished.results, finished.groups, 100)
    assert table["coverage_se"].max() < 0.005
    for row in table.iter_rows(named=True):
        low, high = conformal.coverage_band(row["alpha"], [150, 60], shares=[20, 150])
        error = 3 * row["coverage_se"]
        if row["quantile"] == "exact":
            assert low - error <= row["coverage"] <= high + error
        else:
            assert row["coverage"] < low - 0.03
    (note,) = finished.info["notes"]
    assert "with --quantiles theorem1" in note


def test_exact_alone_has_nothing_to_warn_of_and_sends_what_theorem_1_sends(make_toy):
    """The numbers of test nodes are known from the beginning."""
    graph = skewed(make_toy)
    finished = run_skewed(graph, quantiles=("exact",), seeds=1, rounds=2)
    assert finished.info["notes"] == []
    theorem1 = run_skewed(graph, quantiles=("theorem1",), seeds=1, rounds=2)
    assert finished.ledger.drop("part").equals(theorem1.ledger.drop("part"))


def test_shares_that_test_nodes_do_not_have_are_promised_and_measured(make_toy):
    graph = skewed(make_toy)
    settings = {"quantiles": ("exact",)}
    finished = run_skewed(graph, client_shares=(3, 1), **settings)
    table = summarise(finished.results, finished.groups, 100)
    for row in table.iter_rows(named=True):
        low, high = conformal.coverage_band(row["alpha"], [150, 60], shares=[3, 1])
        error = 3 * row["coverage_se"]
        assert low - error <= row["coverage"] <= high + error
    as_they_are = run_skewed(graph, client_shares=(20, 150), **settings)
    by_count = run_skewed(graph, **settings)
    seconds = "train_seconds"
    assert as_they_are.results.drop(seconds).equals(by_count.results.drop(seconds))
    assert (finished.results["q_hat"] < by_count.results["q_hat"]).all()  # more easy nodes


def test_shares_that_a_small_client_cannot_promise_have_full_sets_and_say_so(make_toy):
    graph = skewed(make_toy, hard_calibrates=5)
    finished = run_skewed(graph, quantiles=("exact",), alphas=(0.2, 0.1), seeds=1, rounds=2)
    # Each score of the hard client stands for 150/170/5 = 0.176 of the nodes.
    (note,) = finished.info["notes"]
    assert "alpha = 0.1 asks for more than the 155 calibration scores at 2 clients" in note
    assert "q_hat is +inf" in note
    assert finished.results.filter(alpha=0.2)["q_hat"].is_finite().all()
    assert (finished.results.filter(alpha=0.1)["coverage"] == 1).all()


def test_shares_of_the_wrong_length_are_refused_before_training(make_toy):
    with pytest.raises(UsageError) as caught:
        run_skewed(skewed(make_toy), quantiles=("exact",), client_shares=(1, 1, 1), rounds=10**9)
    assert str(caught.value) == (
        "client_shares has length 3; it must hold one number for each of the 2 clients."
    )


def test_the_primary_split_and_its_resplits_have_the_same_shares(toy, logits, evaluate):
    """The conversation's q̂ is that of re-splits whose first is the primary one."""
    own = judge(toy, quantiles=("exact", "pooled"))
    own.is_calibration[0] = own.repetition.roles[own.pool] == Role.CALIB
    outcome = evaluate(own, logits)
    true = (1 - conformal.softmax(logits)).astype(np.float32)[np.arange(120), own.y]
    for rule, row in zip(("exact", "pooled"), outcome.results, strict=True):
        test = np.bincount(own.client[~own.is_calibration[0]], minlength=3)
        q_hats = conformal.quantile_over_resplits(
            rule,
            true[own.pool],
            own.client,
            own.is_calibration,
            [ALPHA],
            shares=test if rule == "exact" else None,
        )
        assert row["quantile"] == rule
        assert row["q_hat"] == q_hats[0, 0]
