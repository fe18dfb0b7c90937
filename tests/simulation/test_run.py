from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from torch_geometric.data import Data

from fedcover import Config, DataError, UsageError, run
from fedcover.conformal import worst_slab_coverage
from fedcover.graphs import Role
from fedcover.tables import KEY

# The contract (docs/results.md), written out: other programs rely on names and order.
RESULTS = """
dataset, clients, partition, method, model, score, quantile, alpha, seed, n_calibration, n_test,
q_hat, coverage, coverage_split, set_size, singleton_rate, empty_rate, singleton_hits,
worst_slab_coverage, min_client_coverage, class_coverage_gap, accuracy, train_seconds
"""
LEDGER = "method, seed, kind, part, array, direction, client, round, rounds, type, shape, bytes"
SETS = "method, score, quantile, alpha, seed, node, client, label, set, size, covered"


@pytest.fixture(scope="module")
def finished(toy, quick):
    return run(toy, quick())


def untimed(finished):
    return finished.results.drop("train_seconds")


def holes(results):
    """Columns that miss a number."""
    return [column.name for column in results if column.null_count()]


def test_columns_are_the_contracts_in_order(finished):
    assert ", ".join(finished.results.columns) == " ".join(RESULTS.split())
    assert ", ".join(finished.sets.columns) == SETS
    assert ", ".join(finished.ledger.columns) == LEDGER
    assert finished.sets.schema["set"] == pl.List(pl.String)


def test_every_key_has_exactly_one_row(finished):
    config = finished.config
    settings = (config.methods, config.scores, config.quantiles, config.alphas, config.seed_range)
    assert sorted(finished.results.select(KEY).rows()) == sorted(product(*settings))


def test_what_the_config_says_is_in_every_row(finished):
    same = finished.results.select("dataset", "clients", "partition", "model").unique()
    assert same.rows() == [("toy", 3, "random", "gcn")]


def test_metrics_lie_in_their_ranges_and_nothing_is_missing(finished):
    results = finished.results
    # No set may have one label, and no node of the other half may lie in the worst slab.
    assert holes(results) == ["singleton_hits", "worst_slab_coverage"]
    for name in ("coverage", "singleton_rate", "empty_rate", "min_client_coverage", "accuracy"):
        assert results[name].is_between(0, 1).all()
    assert (results["min_client_coverage"] <= results["coverage"]).all()
    assert results["set_size"].is_between(0, 3).all()
    assert (results["train_seconds"] > 0).all()


def test_hits_are_the_coverage_of_sets_with_one_label(finished):
    one = finished.groups.filter(kind="size", group="1").select(
        *KEY, pl.col("coverage").alias("one")
    )
    joined = finished.results.join(one, on=KEY, how="left")
    assert joined["singleton_hits"].equals(joined["one"].alias("singleton_hits"), null_equal=True)
    none = joined.filter(pl.col("one").is_null())["singleton_rate"]
    assert len(none) == joined.filter(singleton_rate=0).height > 0


def test_the_worst_slab_is_one_of_probabilities_in_the_split_that_was_calibrated(finished):
    rows = finished.results.filter(method="fed", seed=0)
    probs = finished.scores.filter(method="fed").select("score", "node", "probs")
    found = []
    for *key, slab in rows.select(*KEY, "worst_slab_coverage").iter_rows():
        own = finished.sets.filter(**dict(zip(KEY, key, strict=True)))
        own = own.join(probs, on=("score", "node"), maintain_order="left")
        rng = np.random.default_rng([0, 0x51AB])
        x, held = np.array(own["probs"].to_list(), np.float32), own["covered"].to_numpy()
        found.append(worst_slab_coverage(x, held, rng, directions=100))
        assert found[-1] == pytest.approx(slab) if slab is not None else np.isnan(found[-1])
    assert len(found) == 4 * 3 * 3
    assert 0 < np.isnan(found).sum() < len(found)


def test_training_longer_learns(toy, quick):
    settings = {"methods": ("central",), "scores": ("lac",), "quantiles": ("exact",), "seeds": 4}
    short, long = (run(toy, quick(**settings, rounds=rounds)) for rounds in (1, 60))
    # Three labels of equal size: guessing gives 1/3.
    assert long.results["accuracy"].mean() > 0.75 > 0.55 > short.results["accuracy"].mean()


def test_calibration_and_test_are_four_fifths_of_the_nodes(finished):
    assert finished.results.select("n_calibration", "n_test").unique().rows() == [(48, 48)]


def test_sets_list_each_test_node_once(finished):
    sets = finished.sets
    per_key = sets.group_by(KEY).agg(pl.len(), pl.col("node").n_unique().alias("nodes"))
    joined = finished.results.join(per_key, on=KEY)
    assert len(joined) == len(finished.results)
    assert (joined["len"] == joined["n_test"]).all()
    assert (joined["nodes"] == joined["n_test"]).all()
    assert (sets["size"] == sets["set"].list.len()).all()
    assert (sets["covered"] == sets["set"].list.contains(sets["label"])).all()


def test_sets_are_near_the_mean_over_resplits(toy, quick):
    """The split that was calibrated is one more draw like the re-splits: over many seeds it lies
    within four standard errors of them. Scores do not tie, so that no node moves a third of all."""
    seeds, resplits = 16, 50
    finished = run(
        toy,
        quick(
            scores=("lac", "aps"),
            quantiles=("exact",),
            alphas=(0.1, 0.3),
            seeds=seeds,
            resplits=resplits,
        ),
    )
    own = finished.sets.group_by(KEY).agg(
        pl.col("covered").mean().alias("own_coverage"), pl.col("size").mean().alias("own_set_size")
    )
    spread = finished.groups.filter(kind="all")
    joined = spread.join(own, on=KEY).partition_by("method", "score", "alpha")
    assert len(joined) == 3 * 2 * 2
    for cell in joined:
        for name in ("coverage", "set_size"):
            apart = (cell[f"own_{name}"] - cell[name]).mean()
            error = (cell[f"{name}_sd"] ** 2 * (1 + 1 / resplits)).sum() ** 0.5 / seeds
            assert 0 < error < 0.06
            assert abs(apart) < 4 * error


def test_two_runs_differ_in_nothing_but_time(toy, finished, quick):
    again = run(toy, quick())
    assert untimed(again).equals(untimed(finished))
    assert again.groups.equals(finished.groups)
    assert again.sets.equals(finished.sets)
    assert again.info | {"seconds": {}} == finished.info | {"seconds": {}}


def test_a_seed_does_not_depend_on_the_others(toy, quick):
    several = untimed(run(toy, quick(seeds=3))).filter(seed=1)
    alone = untimed(run(toy, quick(seeds=1, first_seed=1)))
    numbers = pl.selectors.float()
    assert several.select(~numbers).equals(alone.select(~numbers))
    # All seeds are one program, so sums may be ordered differently in the last bit of a float32.
    for name in several.select(numbers).columns:
        tolerance = 1e-5 if name == "q_hat" else 0.01  # a bit may move a node in or out of a set
        pair = several[name], alone[name]
        assert np.allclose(*pair, rtol=0, atol=tolerance, equal_nan=True), name


def test_a_method_does_not_depend_on_the_others(toy, finished, quick):
    alone = run(toy, quick(methods=("fed",), scores=("lac",), alphas=(0.3,)))
    own = untimed(finished).filter(method="fed", score="lac", alpha=0.3)
    assert untimed(alone).equals(own)


def test_a_seed_draws_its_own_clients_and_split(make_toy, finished, quick):
    def drawn(sets):
        nodes = sets.select("seed", "node", "client").unique()
        return [dict(nodes.filter(seed=s).select("node", "client").iter_rows()) for s in (0, 1)]

    first, second = drawn(finished.sets)
    assert any(first[node] != second[node] for node in first.keys() & second.keys())
    given = make_toy(client=np.arange(120) % 2, client_names=["p", "q"])
    settings = {"partition": "given", "clients": None, "methods": ("loc",), "scores": ("lac",)}
    first, second = drawn(run(given, quick(**settings)).sets)
    assert first.keys() != second.keys()


def test_a_rank_above_n_gives_full_sets_and_says_so(finished):
    # ⌈0.99 · 48⌉ + 1 = 49 > 48, and ⌈0.99 · 49⌉ = 49 for one owner.
    results = finished.results.filter(quantile="exact", alpha=0.01)
    assert results["q_hat"].to_list() == [float("inf")] * len(results)
    assert (results["coverage"] == 1).all()
    assert (results["set_size"] == 3).all()
    sets = finished.sets.filter(quantile="exact", alpha=0.01)
    assert sets["set"].unique().to_list() == [["a", "b", "c"]]
    found = [n for n in finished.info["notes"] if "quantile exact" in n]
    for note, who in zip(found, ("3 clients", "1 client"), strict=True):  # central is one owner
        asks = f"alpha = 0.01 asks for rank 49 of 48 calibration scores at {who}"
        assert note.startswith(f"seed 0, 1, quantile exact: {asks}")
        assert note.endswith("q_hat is +inf and every set holds all labels.")


def test_averaging_names_its_small_clients_once_for_all_methods_and_scores(finished):
    # 1/0.01 − 1 = 99 and 1/0.1 − 1 = 9; each client holds 16 calibration nodes.
    found = [n for n in finished.info["notes"] if "quantile average" in n]
    for note, who in zip(found, ("0, 1, 2:", "0:"), strict=True):  # central is one owner
        assert "averaging needs n_k >= 1/alpha - 1 = 99" in note
        assert f"too few at client {who}" in note


def test_the_info_can_rebuild_the_run(finished):
    info = finished.info
    assert Config(**info["config"]) == finished.config
    assert info["graph"]["name"] == "toy"
    assert info["graph"]["nodes"] == 120
    assert info["seeds"] == [0, 1]
    assert len(info["cut_edges"]) == 2
    work = ("train", "calibrate")
    stages = [f"{stage} {m}" for m in finished.config.methods for stage in work]
    assert list(info["seconds"]) == ["partition", *stages]
    assert set(info["bytes_by_kind"]) == {"loc", "fed"}  # nothing of central crosses a network
    assert "weights" not in info["bytes_by_kind"]["loc"][0]
    assert info["bytes_by_kind"]["fed"][0]["weights"]["up"] > 0
    assert {len(chosen["temperature"]) for chosen in info["chosen_on_validation"].values()} == {2}


def test_the_ledger_adds_up_to_the_bytes_by_kind(finished):
    keys = ("method", "seed", "kind", "direction")
    spent = finished.ledger.group_by(keys).agg((pl.col("bytes") * pl.col("rounds")).sum())
    from_info = {
        (method, seed, kind, direction, count)
        for method, seeds in finished.info["bytes_by_kind"].items()
        for seed, kinds in zip(finished.info["seeds"], seeds, strict=True)
        for kind, sent in kinds.items()
        for direction, count in sent.items()
        if count
    }
    assert set(spent.filter(pl.col("bytes") > 0).rows()) == from_info
    assert finished.ledger["method"].unique(maintain_order=True).to_list() == ["loc", "fed"]


def test_the_ledger_calls_clients_by_their_names_and_the_centre_sends_nothing(make_toy, quick):
    named = make_toy(client=np.arange(120) % 2, client_names=["north", "south"])
    settings = {"partition": "given", "clients": 2, "scores": ("lac",), "seeds": 1}
    sent = run(named, quick(**settings, methods=("fed",))).ledger
    assert set(sent["client"]) == {"north", "south"}
    nothing = run(named, quick(**settings, methods=("central",))).ledger
    assert nothing.is_empty()
    assert nothing.schema == sent.schema


def test_progress_counts_every_stage_to_its_end(toy, quick):
    heard = []
    run(toy, quick(methods=("loc", "fed")), progress=lambda *step: heard.append(step))
    assert heard[:2] == [("partition", 1, 2), ("partition", 2, 2)]
    stages = list(dict.fromkeys(stage for stage, _, _ in heard))
    assert stages == ["partition", "train loc", "calibrate loc", "train fed", "calibrate fed"]
    for stage in stages:
        steps = [(done, total) for name, done, total in heard if name == stage]
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1] == (4 if "train" in stage else 2)


def test_progress_counts_gens_vaes(toy, quick):
    heard = []
    run(toy, quick(methods=("gen",)), progress=lambda *step: heard.append(step))
    clients = 2 * quick().clients  # of both seeds
    counted = [(done, total) for stage, done, total in heard if stage == "VAEs gen"]
    assert counted == [(done, clients) for done in range(1, clients + 1)]


def test_given_clients_and_splits_are_honoured(make_toy, quick):
    rng = np.random.default_rng(3)
    client = rng.permutation(np.arange(120) % 2)
    roles = rng.permutation(np.arange(120) % 4)
    graph = make_toy(client=client, client_names=["north", "south"], split=roles)
    finished = run(graph, quick(partition="given", clients=None, alphas=(0.3,)))
    assert finished.results.select(
        "clients", "partition", "n_calibration", "n_test"
    ).unique().rows() == [(2, "given", 30, 30)]
    for row in finished.sets.select("node", "client").unique().iter_rows(named=True):
        node = int(row["node"].removeprefix("n"))
        assert roles[node] == Role.TEST
        assert row["client"] == ("north", "south")[client[node]]
    assert set(finished.groups.filter(kind="client")["group"]) == {"north", "south"}


def test_a_given_split_is_honoured_under_another_partition(make_toy, quick):
    roles = np.random.default_rng(3).permutation(np.arange(120) % 4)
    finished = run(make_toy(split=roles), quick(alphas=(0.3,), methods=("fed",)))
    nodes = finished.sets["node"].str.strip_prefix("n").cast(pl.Int64).unique()
    assert sorted(nodes) == np.flatnonzero(roles == Role.TEST).tolist()


SETTINGS = [
    {"model": "sage"},
    {"batch_size": 4},
    {"local_epochs": 2},
    {"hidden": 5},
    {"lr": 0.1},
    {"dropout": 0.0},
    {"train": 0.4},
]


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_training_settings_reach_the_engine(toy, finished, quick, changes):
    other = run(toy, quick(methods=("fed",), scores=("lac",), quantiles=("exact",), **changes))
    own = untimed(finished).filter(method="fed", score="lac", quantile="exact")
    assert not untimed(other).drop("model").equals(own.drop("model"))


def test_valid_zero_needs_no_validation_nodes(toy, quick):
    finished = run(toy, quick(valid=0.0))
    assert finished.info["chosen_on_validation"]["fed"]["best_round"] == [4, 4]  # the last
    assert holes(finished.results) == ["singleton_hits", "worst_slab_coverage"]


def test_what_cannot_be_cut_is_refused_before_any_progress(toy, quick):
    heard = []
    with pytest.raises(UsageError, match="clients is 121, but toy has only 120 nodes"):
        run(toy, quick(clients=121), progress=lambda *step: heard.append(step))
    with pytest.raises(DataError, match="Client 0 has too few nodes, 2"):
        run(toy, quick(clients=60, partition="random"), progress=lambda *s: heard.append(s))
    assert heard == []


def test_a_plain_pyg_graph_is_enough(toy, quick):
    bare = Data(x=toy.x, edge_index=toy.edge_index[:, ::2], y=toy.y)
    finished = run(bare, quick(methods=("fed",), seeds=1))
    assert finished.info["graph"]["name"] == "graph"
    assert set(finished.sets["label"]) == {"0", "1", "2"}


def test_a_graph_that_points_nowhere_is_refused(toy, quick):
    wrong = Data(x=toy.x, edge_index=toy.edge_index + 70, y=toy.y)
    with pytest.raises(DataError, match="edge_index"):
        run(wrong, quick())


def test_features_are_scaled_if_they_look_like_words(make_toy, quick):
    config = quick(methods=("fed",), seeds=1)
    graph = make_toy()  # its features have both signs
    assert config.unit_features is None
    assert run(graph, config).config.unit_features is False
    words = make_toy()
    words.x = (words.x > 1.0).float()
    finished = run(words, config)
    assert finished.config.unit_features is True
    assert finished.info["config"]["unit_features"] is True
    raw = run(words, replace(config, unit_features=False))
    assert not raw.results["q_hat"].equals(finished.results["q_hat"])
