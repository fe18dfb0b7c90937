"""A run for nodes without a label: no test node, sets for those who are asked about, and nothing
that was not measured."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fedcover
from fedcover.config import Config
from fedcover.errors import DataError, UsageError
from fedcover.graphs.splits import Role
from fedcover.report.page import write_run_page
from fedcover.simulation.repetition import prepare

CONFIG = Config(
    partition="given",
    methods=("loc", "fed", "central"),
    scores=("lac", "aps"),
    alphas=(0.1, 0.3),
    seeds=2,
    rounds=4,
    hidden=8,
    test=0,
)
UNMEASURED = ("coverage", "min_client_coverage", "class_coverage_gap")
SIZES = ("set_size", "singleton_rate", "empty_rate")


@pytest.fixture(scope="module")
def graph(hospitals):
    return hospitals(nodes=150)[0]


@pytest.fixture(scope="module")
def finished(graph):
    return fedcover.run(graph, CONFIG)


def test_all_labelled_nodes_train_or_calibrate(graph, finished):
    roles = prepare(graph, CONFIG, 0).roles
    assert set(roles[graph.y.numpy() >= 0]) == {Role.TRAIN, Role.VALID, Role.CALIB}
    assert finished.results["n_calibration"].to_list() == [(roles == Role.CALIB).sum()] * 24
    assert finished.results["n_test"].to_list() == [0] * 24


def test_what_needs_a_label_is_empty_and_sizes_are_those_of_the_sets(graph, finished):
    results, unlabelled = finished.results, int((graph.y < 0).sum())
    assert all(results[name].null_count() == len(results) for name in UNMEASURED)
    key = ["method", "score", "quantile", "alpha", "seed"]
    size = pl.col("size")
    sets = finished.sets.group_by(key).agg(
        n=pl.len(),
        set_size=size.mean(),
        singleton_rate=(size == 1).mean(),
        empty_rate=(size == 0).mean(),
    )
    both = results.join(sets, on=key, suffix="_sets")
    assert both["n"].to_list() == [unlabelled] * len(results)
    for name in SIZES:
        np.testing.assert_allclose(both[name], both[f"{name}_sets"], rtol=1e-12)
    assert finished.sets["covered"].null_count() == len(finished.sets)


def test_groups_count_nodes_without_a_label(graph, finished):
    groups = finished.groups
    assert groups["coverage"].null_count() == len(groups)
    assert set(groups["kind"]) == {"all", "client", "degree", "position", "size"}
    of_client = groups.filter(kind="client", method="fed", score="lac", alpha=0.1, seed=0)
    expected = np.bincount(graph.client[graph.y < 0].numpy())
    assert of_client["n_test"].to_list() == expected.tolist()
    sizes = groups.filter(kind="size", method="fed", score="lac", alpha=0.1, seed=0)
    assert sizes["n_test"].sum() == expected.sum()


def test_accuracy_is_that_of_calibration_nodes(graph, finished):
    predictor = next(one for one in finished.predictors if one.method == "fed")
    calib, y = prepare(graph, CONFIG, 0).roles == Role.CALIB, graph.y.numpy()
    right = (predictor.probs(graph).argmax(axis=1) == y)[calib].mean()
    found = finished.results.filter(method="fed", seed=0)["accuracy"]
    assert found.to_list() == pytest.approx([right] * 4)


@pytest.mark.parametrize("method", CONFIG.methods)
@pytest.mark.parametrize("test", [0, None], ids=["no test nodes", "with test nodes"])
def test_predict_and_the_run_agree(graph, tmp_path, method, test):
    config = replace(CONFIG, methods=(method,), seeds=1, test=test)
    finished = fedcover.run(graph, config)
    predictor = fedcover.load_predictor(finished.save(tmp_path / "run"))
    for (score, alpha), rows in finished.sets.group_by("score", "alpha"):
        only = ("test", "unlabelled")
        found = predictor.predict(graph, alpha, score, only, allow_empty=True)
        for column in ("node", "client", "label", "set", "covered"):
            assert found[column].to_list() == rows[column].to_list()


@pytest.mark.parametrize("kind", ["client", "class", "group"])
def test_with_thresholds_of_their_own(graph, tmp_path, kind):
    graph = graph.clone()
    graph.group, graph.group_names = graph.y.clone().fill_(0), ["b", "a"]
    graph.group[::2] = 1
    config = replace(CONFIG, methods=("fed",), seeds=1, scores=("lac",), calibrate=kind)
    finished = fedcover.run(graph, config)
    predictor = fedcover.load_predictor(finished.save(tmp_path / "run"))
    for (alpha,), rows in finished.sets.group_by("alpha"):
        found = predictor.predict(graph, alpha, only="unlabelled", allow_empty=True)
        assert found["set"].to_list() == rows["set"].to_list()
        size = finished.results.filter(alpha=alpha)["set_size"].item()
        assert size == pytest.approx(rows["size"].mean())


def test_page_and_card_say_what_is_promised(graph, finished, tmp_path):
    folder = finished.save(tmp_path / "run")
    page = (folder / "report.html").read_bytes()
    unlabelled = int((graph.y < 0).sum())
    assert f"at least 90% of the {unlabelled} nodes without a label, on average".encode() in page
    write_run_page(folder)
    assert (folder / "report.html").read_bytes() == page
    card = (folder / "model/fed/MODEL_CARD.md").read_text()
    assert "None: the run had no test nodes." in card
    assert "| lac | exact | 0.1 | – |" in card
    assert json.loads((folder / "run.json").read_bytes())["graph"]["unlabelled"] == unlabelled
    assert ",NaN" not in (folder / "results.csv").read_text()


def test_without_anybody_to_ask_about(toy, quick, tmp_path):
    finished = fedcover.run(toy, quick(methods=("fed",), seeds=1, test=0))
    assert finished.sets.is_empty()
    assert all(finished.results[name].is_null().all() for name in (*UNMEASURED, *SIZES))
    page = (finished.save(tmp_path / "run") / "report.html").read_text()
    assert "Every node has a label, so that no set was made." in page


def test_a_given_split_may_have_no_test_node_but_not_at_one_client_alone(graph):
    given = graph.clone()
    roles = prepare(graph, CONFIG, 0).roles.astype(np.int64)
    given.split = graph.y.clone()
    given.split.numpy()[:] = roles
    config = replace(CONFIG, methods=("fed",), seeds=1, test=None)
    assert fedcover.run(given, config).results["n_test"].to_list() == [0] * 4
    given.split[np.flatnonzero(roles == Role.CALIB)[0]] = int(Role.TEST)
    with pytest.raises(DataError, match="Client hospital 2 has no node with split 'test'"):
        fedcover.run(given, config)


def test_shares_that_leave_nothing_to_calibrate_with_are_refused():
    with pytest.raises(UsageError, match=r"train is 0\.2 and test is 0\.8, which leaves no node"):
        Config(test=0.8)
