"""Own tables in a run: standardised by training nodes, gaps filled, unknown labels left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
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
from fedcover.simulation.run import prepare, run, settled

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


def test_training_nodes_have_mean_0_and_deviation_1(tmp_path: Path) -> None:
    graph = load(patients(tmp_path))
    config = settled(CONFIG, graph)
    assert (config.standardise, config.unit_features) == (True, False)
    raw = graph.x.clone()
    for seed in (0, 1):
        repetition = prepare(graph, config, seed)
        train = repetition.roles == Role.TRAIN
        oracle = StandardScaler().fit(raw.to_dense().numpy()[train][:, :2])
        expected = oracle.transform(raw.to_dense().numpy()[:, :2])
        x = repetition.graph.x.to_dense().numpy()
        assert np.allclose(x[:, :2], expected, atol=1e-4)
        assert np.array_equal(x[:, 2:], raw.to_dense().numpy()[:, 2:])
        assert repetition.scaling is not None
        again = Scaling.from_dict(json.loads(json.dumps(repetition.scaling.to_dict())))
        assert np.array_equal(scaled(feature_matrix(graph), again), x)
    assert torch.equal(graph.x.to_dense(), raw.to_dense())  # the loaded graph stays as it is


def test_other_nodes_do_not_shape_the_scale(tmp_path: Path) -> None:
    graph = load(patients(tmp_path))
    config = settled(CONFIG, graph)
    first = prepare(graph, config, 0)
    graph.x[torch.from_numpy(first.roles != Role.TRAIN)] = 1e5
    second = prepare(graph, config, 0)
    assert first.scaling is not None
    assert second.scaling is not None
    assert first.scaling.to_dict() == second.scaling.to_dict()


def test_gaps_are_filled_with_the_mean_of_the_seeds_training_nodes(tmp_path: Path) -> None:
    graph = load(patients(tmp_path, gaps=20), missing="impute")
    raw = graph.x.to_dense().numpy()
    holes = graph.missing.numpy()
    there = np.ones(len(raw), dtype=bool)
    there[holes[0]] = False
    means = set()
    for seed in (0, 1):
        plain = prepare(graph, replace(CONFIG, standardise=False), seed)
        mean = raw[(plain.roles == Role.TRAIN) & there, 0].astype(np.float64).mean()
        filled = plain.graph.x.to_dense().numpy()
        assert np.allclose(filled[~there, 0], mean)
        assert np.array_equal(filled[there], raw[there])
        means.add(float(filled[~there, 0][0]))
        on_scale = prepare(graph, replace(CONFIG, standardise=True), seed)
        assert np.allclose(on_scale.graph.x.to_dense().numpy()[~there, 0], 0, atol=1e-6)
        assert "missing" not in on_scale.graph
    assert len(means) == 2


@pytest.mark.parametrize("setting", [None, True, False])
def test_named_graphs_are_left_alone_unless_asked(random_graph, setting: bool | None) -> None:
    config = settled(Config(clients=2, standardise=setting), random_graph)
    assert config.standardise is bool(setting)
    repetition = prepare(random_graph, config, 0)
    if setting:
        train = repetition.roles == Role.TRAIN
        assert np.allclose(repetition.graph.x.numpy()[train].std(axis=0), 1, atol=1e-5)
    else:
        assert repetition.graph is random_graph
        assert repetition.scaling is None


def test_sparse_bits_of_a_table_stay_the_same_object(tmp_path: Path) -> None:
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
    assert prepare(graph, config, 0).graph is graph


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
    rows = finished.ledger.filter(kind="feature statistics", seed=0, method="fed")
    assert sorted(rows.select("direction", "client").rows()) == [
        (way, ward) for way in ("down", "up") for ward in ("north", "south", "west")
    ]
    up, down = (rows.filter(direction=way) for way in ("up", "down"))
    assert up["shape"].to_list() == [[3, 2]] * 3
    assert up["bytes"].to_list() == [3 * 2 * 8] * 3
    assert down["bytes"].to_list() == [2 * 2 * 4] * 3
    assert set(finished.ledger["method"]) == {"loc", "fed"}
    raw = run(load(tmp_path), replace(CONFIG, standardise=False))
    assert raw.ledger.filter(kind="feature statistics").is_empty()
    assert raw.info["config"]["standardise"] is False
    assert finished.info["config"]["standardise"] is True


def test_a_client_column_that_is_not_used_is_noted(tmp_path: Path) -> None:
    graph = load(patients(tmp_path))
    config = replace(CONFIG, partition="random", clients=2, methods=("fed",), seeds=1)
    assert "the graph names clients of its own, 3," in " ".join(run(graph, config).info["notes"])
    given = replace(CONFIG, methods=("fed",), seeds=1)
    assert "clients of its own" not in " ".join(run(graph, given).info["notes"])


# --- labels that are not known


def test_unlabelled_nodes_take_part_in_nothing_but_the_graph(tmp_path: Path) -> None:
    graph = load(patients(tmp_path, unknown=12))
    config = replace(
        CONFIG, methods=("fed+prox+prior+mix", "gen", "fedsage+"), seeds=1, scores=("lac", "snaps")
    )
    finished = run(graph, config)
    assert finished.info["notes"][0] == (
        "12 of 90 nodes have no label: neighbours to others, but neither trained on, nor "
        "calibrated with, nor tested."
    )
    unknown = {f"p{i}" for i in range(12)}
    assert not unknown & set(finished.sets["node"])
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
    assert read_run(folder).nodes is not None


def test_what_stands_for_an_unknown_label_is_never_looked_at(tmp_path: Path) -> None:
    """The same nodes, unlabelled, or labelled at random and without a role: the same sets."""
    graph = load(patients(tmp_path, unknown=12))
    roles = prepare(graph, CONFIG, 0).roles
    blind = run(graph, replace(CONFIG, seeds=1))
    assert (roles[:12] == -1).all()
    for other in (0, 2):
        guessed = load(tmp_path)
        repetition = prepare(graph, settled(CONFIG, graph), 0)
        guessed.y = torch.where(graph.y < 0, other, graph.y)
        from fedcover.federation.ledger import Ledger

        from fedcover.simulation.evaluation import Judge

        config = settled(replace(CONFIG, seeds=1), graph)
        logits = np.random.default_rng(1).normal(size=(90, 3)).astype(np.float32)
        mine = Judge(repetition, config).evaluate(logits, Ledger())
        theirs = Judge(replace(repetition, graph=guessed), config).evaluate(logits, Ledger())
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
