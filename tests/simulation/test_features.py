"""Own tables in a run: standardised by training nodes, gaps filled, unknown labels left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from sklearn.preprocessing import StandardScaler

from fedcover.config import Config
from fedcover.errors import DataError
from fedcover.graphs import Role, load, scaled
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.check import check_graph
from fedcover.graphs.scaling import Scaling
from fedcover.graphs.sites import read_sites, write_sites
from fedcover.report.folder import read_folder as read_run
from fedcover.simulation.evaluation import Judge
from fedcover.simulation.repetition import Repetition, prepare, settled
from fedcover.simulation.run import Simulation, run

CONFIG = Config(
    partition="given", methods=("loc", "fed", "central"), alphas=(0.1,), seeds=2, rounds=4, hidden=8
)


def patients(folder: Path, *, unknown: int = 0, gaps: int = 0) -> Path:
    """90 patients of three wards: an income in thousands, an age, a word and a bit."""
    rng = np.random.default_rng(8)
    n = 90
    y = rng.integers(0, 3, n)
    label = [None if i < unknown else "abc"[k] for i, k in enumerate(rng.permutation(y))]
    income = (rng.normal(40_000, 9_000, n) + 5_000 * y).round(1).tolist()
    for i in range(gaps):
        income[3 * i] = None
    table = {
        "id": [f"p{i}" for i in range(n)],
        "label": label,
        "client": ["north", "south", "west"] * (n // 3),
        "income": income,
        "age": rng.integers(1, 90, n),
        "town": rng.choice(["A", "B", "C"], n),
        "smokes": rng.integers(0, 2, n),
    }
    folder.mkdir(exist_ok=True)
    pl.DataFrame(table).write_csv(folder / "nodes.csv")
    ends = rng.integers(0, n, (2, 250))
    pl.DataFrame(
        {"source": [f"p{i}" for i in ends[0]], "target": [f"p{i}" for i in ends[1]]}
    ).write_csv(folder / "edges.csv")
    return folder


def parties(graph, config: Config, seed: int):
    """The federation after its parties have agreed on a scale, and all nodes' features on it."""
    (own,) = Simulation([prepare(graph, config, seed)], config, lambda *_: None)._parties
    rows = [party.graph.x for party in own.parties]
    return own, own.gathered([x.toarray() if sp.issparse(x) else x for x in rows])


def scaling_of(own):
    """The one that all parties have."""
    first, *others = (party.scaling for party in own.parties)
    assert all(other.to_dict() == first.to_dict() for other in others)
    return first


def test_training_nodes_have_mean_0_and_deviation_1(tmp_path: Path) -> None:
    graph = load(patients(tmp_path))
    config = settled(CONFIG, graph)
    assert (config.standardise, config.unit_features) == (True, False)
    raw = graph.x.clone()
    for seed in (0, 1):
        own, x = parties(graph, config, seed)
        train = own.repetition.roles == Role.TRAIN
        oracle = StandardScaler().fit(raw.to_dense().numpy()[train][:, :2])
        expected = oracle.transform(raw.to_dense().numpy()[:, :2])
        assert np.allclose(x[:, :2], expected, atol=1e-4)
        assert np.array_equal(x[:, 2:], raw.to_dense().numpy()[:, 2:])
        again = Scaling.from_dict(json.loads(json.dumps(scaling_of(own).to_dict())))
        assert np.array_equal(scaled(feature_matrix(graph), again), x)
    assert torch.equal(graph.x.to_dense(), raw.to_dense())  # the loaded graph stays as it is


def test_other_nodes_do_not_shape_the_scale(tmp_path: Path) -> None:
    graph = load(patients(tmp_path))
    config = settled(CONFIG, graph)
    first, _ = parties(graph, config, 0)
    graph.x[torch.from_numpy(first.repetition.roles != Role.TRAIN)] = 1e5
    second, _ = parties(graph, config, 0)
    assert scaling_of(first).to_dict() == scaling_of(second).to_dict()


def test_gaps_are_filled_with_the_mean_of_the_seeds_training_nodes(tmp_path: Path) -> None:
    graph = load(patients(tmp_path, gaps=20), missing="impute")
    raw = graph.x.to_dense().numpy()
    holes = graph.missing.numpy()
    there = np.ones(len(raw), dtype=bool)
    there[holes[0]] = False
    means = set()
    for seed in (0, 1):
        plain, filled = parties(graph, replace(CONFIG, standardise=False), seed)
        mean = raw[(plain.repetition.roles == Role.TRAIN) & there, 0].astype(np.float64).mean()
        assert np.allclose(filled[~there, 0], mean)
        assert np.array_equal(filled[there], raw[there])
        means.add(float(filled[~there, 0][0]))
        _, on_scale = parties(graph, replace(CONFIG, standardise=True), seed)
        assert np.allclose(on_scale[~there, 0], 0, atol=1e-6)
    assert len(means) == 2


@pytest.mark.parametrize("setting", [None, True, False])
def test_named_graphs_are_left_alone_unless_asked(random_graph, setting: bool | None) -> None:
    config = settled(Config(clients=2, standardise=setting), random_graph)
    assert config.standardise is bool(setting)
    own, x = parties(random_graph, config, 0)
    if setting:
        train = own.repetition.roles == Role.TRAIN
        assert np.allclose(x[train].std(axis=0), 1, atol=1e-5)
    else:
        assert np.array_equal(x, random_graph.x.numpy())
        assert [party.scaling for party in own.parties] == [None] * 2


def test_sparse_bits_of_a_table_stay_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bits = (rng.random((40, 30)) < 0.05).astype(int)
    frame = pl.DataFrame({"id": range(40), "label": [i % 2 for i in range(40)]})
    frame.hstack(pl.DataFrame(bits, schema=[f"w{i}" for i in range(30)])).write_csv(
        tmp_path / "nodes.csv"
    )
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    graph = load(tmp_path)
    assert graph.x.layout == torch.sparse_csr
    config = settled(Config(clients=2), graph)
    assert (config.standardise, config.unit_features) == (False, True)
    own, x = parties(graph, config, 0)
    assert all(sp.issparse(party.graph.x) for party in own.parties)
    assert np.array_equal(x, graph.x.to_dense().numpy())


def test_counts_of_words_are_not_standardised_unless_asked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.2, (40, 30))
    frame = pl.DataFrame({"id": range(40), "label": [i % 2 for i in range(40)]})
    frame.hstack(pl.DataFrame(counts, schema=[f"w{i}" for i in range(30)])).write_csv(
        tmp_path / "nodes.csv"
    )
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    graph = load(tmp_path)
    assert graph.numeric.any()
    default = settled(Config(clients=2), graph)
    assert (default.standardise, default.unit_features) == (False, True)
    asked = settled(Config(clients=2, standardise=True), graph)
    assert (asked.standardise, asked.unit_features) == (True, False)


def test_a_run_enters_the_sums_in_the_ledger(tmp_path: Path) -> None:
    finished = run(load(patients(tmp_path)), CONFIG)
    columns = finished.info["graph"]["features"]
    numbers = 2  # income and age
    for ward in ("north", "south", "west"):
        own = finished.ledger.filter(seed=0, method="fed", client=ward)
        rows = own.filter(pl.col("part").str.starts_with("data/"))
        assert rows.select("kind", "direction", "array", "type", "shape", "rounds").rows() == [
            ("columns", "up", "numeric", "int64", [columns], 1),
            ("columns", "up", "missing", "int64", [columns], 1),
            ("statistics", "down", "columns", "int64", [numbers], 1),
            ("statistics", "up", "count", "int64", [numbers], 1),
            ("statistics", "up", "sums", "int64", [2, numbers, 14], 1),  # wide integers
            ("scaling", "down", "mean", "float32", [columns], 1),
            ("scaling", "down", "scale", "float32", [columns], 1),
            ("scaling", "down", "fill", "float32", [columns], 1),
        ]
    assert set(finished.ledger["method"]) == {"loc", "fed"}
    raw = run(load(tmp_path), replace(CONFIG, standardise=False))
    assert raw.ledger.filter(pl.col("part").str.starts_with("data/")).is_empty()
    assert raw.info["config"]["standardise"] is False
    assert finished.info["config"]["standardise"] is True


def test_a_client_column_that_is_not_used_is_noted(tmp_path: Path) -> None:
    graph = load(patients(tmp_path))
    config = replace(CONFIG, partition="random", clients=2, methods=("fed",), seeds=1)
    assert "the graph names clients of its own, 3," in " ".join(run(graph, config).info["notes"])
    given = replace(CONFIG, methods=("fed",), seeds=1)
    assert "clients of its own" not in " ".join(run(graph, given).info["notes"])


# --- labels that are not known


def test_unlabelled_nodes_get_sets_and_take_part_in_nothing_else(tmp_path: Path) -> None:
    graph = load(patients(tmp_path, unknown=12))
    config = replace(
        CONFIG, methods=("fed+prox+prior+mix", "gen", "fedsage+"), seeds=1, scores=("lac", "snaps")
    )
    finished = run(graph, config)
    assert finished.info["notes"][0] == (
        "12 of 90 nodes have no label: each gets a set and serves as a neighbour, but none is used "
        "to train, calibrate or test."
    )
    unknown = {f"p{i}" for i in range(12)}
    silent = finished.sets.filter(pl.col("node").is_in(list(unknown)))
    assert len(silent) == 12 * len(finished.results)
    assert silent["label"].null_count() == silent["covered"].null_count() == len(silent)
    rest = finished.sets.filter(~pl.col("node").is_in(list(unknown)))
    assert rest["covered"].null_count() == 0
    assert len(rest) == finished.results["n_test"].sum()
    counts = finished.results.select("n_calibration", "n_test").row(0)
    roles = prepare(graph, settled(config, graph), 0).roles
    assert counts == ((roles == Role.CALIB).sum(), (roles == Role.TEST).sum())
    assert (roles >= 0).sum() == 78
    classes = finished.groups.filter(kind="class")
    assert set(classes["group"]) <= {"a", "b", "c"}
    folder = finished.save(tmp_path / "run")
    nodes = pl.read_parquet(folder / "nodes.parquet").filter(role="unlabelled")
    assert set(nodes["node"]) == unknown
    assert nodes["label"].null_count() == 12
    assert "unlabelled" in (folder / "report.html").read_text()
    assert read_run(folder).drawing


def test_what_stands_for_an_unknown_label_is_never_looked_at(tmp_path: Path, given_outputs) -> None:
    """The same nodes, unlabelled, or labelled at random and without a role: the same sets."""
    graph = load(patients(tmp_path, unknown=12))
    roles = prepare(graph, CONFIG, 0).roles
    blind = run(graph, replace(CONFIG, seeds=1))
    assert (roles[:12] == -1).all()
    for other in (0, 2):
        guessed = load(tmp_path)
        repetition = prepare(graph, settled(CONFIG, graph), 0)
        guessed.y = torch.where(graph.y < 0, other, graph.y)
        data = [replace(one, y=np.where(one.y < 0, other, one.y)) for one in repetition.data]
        told = Repetition(guessed, repetition.partition, 0, data)
        config = settled(replace(CONFIG, seeds=1), graph)
        logits = np.random.default_rng(1).normal(size=(90, 3)).astype(np.float32)
        mine, theirs = (
            Judge(one, config).evaluate(*given_outputs(one, config, logits))
            for one in (repetition, told)
        )
        assert mine.results == theirs.results
        assert mine.groups == theirs.groups
    assert blind.results["n_test"][0] == (roles == Role.TEST).sum()


def test_a_client_without_labelled_nodes_is_refused(tmp_path: Path) -> None:
    graph = load(patients(tmp_path))
    graph.y[graph.client == 1] = -1
    with pytest.raises(DataError, match="Client south has no node with a label"):
        run(graph, CONFIG)


def test_sites_keep_unlabelled_nodes(tmp_path: Path) -> None:
    graph = check_graph(load(patients(tmp_path / "g", unknown=12)))
    cut = prepare(graph, CONFIG, 0)
    write_sites(tmp_path / "sites", graph, cut.partition, cut.roles)
    together = read_sites(tmp_path / "sites")
    assert (together.y == -1).sum() == 12
    order = {name.split("/")[1]: i for i, name in enumerate(together.node_ids)}
    places = [order[node] for node in graph.node_ids]
    assert torch.equal(together.y[places], graph.y)
    assert np.array_equal(together.split.numpy()[places], cut.roles)
