"""Whom a saved predictor promises nothing: clients that a run has left out, and nodes that one
owner's threshold does not speak of."""

import numpy as np
import pytest

import fedcover
from fedcover.config import Config
from fedcover.graphs.assemble import assemble
from fedcover.predictor.calibration import APART, OWNED

CONFIG = Config(partition="given", methods=("fed",), seeds=1, rounds=10, hidden=8, resplits=20)


def five_clients(hard=4, nodes=200):
    """Four alike, and one whose features tell its labels badly."""
    rng, client = np.random.default_rng(5), np.repeat(np.arange(5), nodes)
    y = rng.integers(0, 3, 5 * nodes)
    noise = np.where(client == hard, 4.0, 0.8)
    pairs = rng.permutation(nodes).reshape(2, -1)
    return assemble(
        1.5 * np.eye(3)[y] + noise[:, None] * rng.normal(size=(5 * nodes, 3)),
        np.concatenate([pairs + nodes * k for k in range(5)], axis=1),
        y,
        name="five",
        label_names=["x", "y", "z"],
        node_ids=np.arange(5 * nodes),
        client=client,
        client_names=list("abcde"),
    )


@pytest.fixture(scope="module")
def robust():
    graph = five_clients()
    return graph, fedcover.run(graph, CONFIG.preset("default", **vars(CONFIG) | {"robust": 1}))


def test_a_client_that_was_left_out_has_no_promise_and_is_not_judged(robust):
    graph, finished = robust
    assert finished.info["left_out"] == {"fed": [["e"]]}
    (predictor,) = finished.predictors
    told = predictor.predict(graph, only="test")
    said = dict(told.group_by("client").agg("promise").iter_rows())
    assert set(said["e"]) == {APART}
    assert all(one.startswith("yes") for k in "abcd" for one in said[k])
    # Measured for the others alone, whom the promise is for.
    rows = finished.groups.filter(kind="client", score="lac").filter(alpha=0.1)
    kept, n = rows.filter(rows["group"] != "e"), "n_test"
    by_share = (kept["coverage"] * kept[n]).sum() / kept[n].sum()
    assert finished.results.filter(alpha=0.1)["coverage"].item() == pytest.approx(
        by_share, abs=0.01
    )


def test_recalibration_leaves_it_out_again(robust):
    graph, finished = robust
    again = finished.predictors[0].recalibrated(graph)
    assert np.array(again.terms.shares)[4] == 0
    told = again.predict(graph, only="test")
    assert set(told.filter(client="e")["promise"]) == {APART}


def test_recalibration_keeps_shares_that_were_set_and_limits():
    graph = five_clients()
    shares = (0.4, 0.3, 0.1, 0.1, 0.1)
    changes = {"fixed": {"client_shares": shares}, "limited": {"max_share": 0.2}}
    found = {
        name: fedcover.run(graph, Config(**vars(CONFIG) | own)).predictors[0].recalibrated(graph)
        for name, own in changes.items()
    }
    assert found["fixed"].terms.shares == pytest.approx(shares)
    assert found["limited"].max_share == 0.2


def test_one_owner_promises_nothing_where_clients_lack_labels_otherwise(hospitals):
    """Its rank takes all nodes as drawn alike; at the harder hospital nearly all labels lack."""
    graph, y = hospitals()
    finished = fedcover.run(graph, Config(**vars(CONFIG) | {"methods": ("fed", "central")}))
    truth = np.array(graph.label_names)[y]
    covered, said = {}, {}
    for predictor in finished.predictors:
        told = predictor.predict(graph, only="unlabelled", allow_empty=True)
        held = [truth[int(node)] in own for node, own in told.select("node", "set").iter_rows()]
        covered[predictor.method] = np.mean(held)
        (said[predictor.method],) = set(told["promise"])
    assert covered["fed"] > 0.88
    assert said["fed"].startswith("yes")
    assert covered["central"] < 0.8
    assert said["central"] == OWNED
    assert any("for one owner, the promise is for" in note for note in finished.info["notes"])
