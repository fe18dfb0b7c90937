"""A predictor gives the run's own sets, at any level, and says for whom they are promised."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch

import fedcover
from fedcover.errors import DataError, UsageError
from fedcover.graphs.assemble import assemble, feature_matrix
from fedcover.graphs.splits import Role
from fedcover.predictor.calibration import PROMISES, Calibration

METHODS = (
    "loc",
    "fed",
    "gen",
    "fed+prox+prior+mix",
    "fed+tuned",
    "gen+prior",
    "central",
)
ALPHAS = (0.1, 0.3)


@pytest.mark.parametrize("method", METHODS)
def test_the_sets_are_those_of_the_run(method, graph, finished, folder):
    predictor = fedcover.load_predictor(folder, method)
    for (score, alpha), rows in finished.sets.filter(method=method, seed=0).group_by(
        "score", "alpha"
    ):
        found = predictor.predict(graph, alpha, score, only=("test",), allow_empty=True)
        assert found["node"].to_list() == rows["node"].to_list()
        assert found["set"].to_list() == rows["set"].to_list()
        assert found["covered"].to_list() == rows["covered"].to_list()
        assert set(found["promise"]) == {PROMISES["test"]}
        q_hat = finished.results.filter(method=method, seed=0, score=score, alpha=alpha)["q_hat"]
        assert predictor.q_hat(alpha, score) == pytest.approx(q_hat[0], rel=1e-6)


def test_sets_of_another_level_need_no_training_and_are_nested(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    tables = [predictor.predict(graph, alpha, "aps") for alpha in (0.02, 0.17, 0.5)]
    for wide, narrow in pairwise(tables):
        pairs = zip(wide["set"].to_list(), narrow["set"].to_list(), strict=True)
        assert all(set(small) <= set(large) for large, small in pairs)
    assert tables[0]["size"].mean() > tables[2]["size"].mean()


def test_a_threshold_is_the_rank_of_the_theorem():
    scores, client = np.arange(20, dtype=np.float32)[::-1], np.arange(20) % 2
    calibration = Calibration.of(scores, client, clients=3)
    # ⌈0.8 · (20 + 3)⌉ = 19, the 19th smallest of 0 … 19 is 18; ⌈0.95 · 23⌉ = 22 > 20.
    assert calibration.pooled(0.2, "theorem1").q_hat == 18.0
    assert calibration.pooled(0.05, "theorem1").q_hat == np.inf
    # exact: ⌈0.8 · 20⌉ + 1 = 17, which is 16; ⌈0.95 · 20⌉ + 1 = 20, which is 19.
    assert calibration.pooled(0.2, "exact").q_hat == 16.0
    assert calibration.pooled(0.05, "exact").q_hat == 19.0
    assert calibration.pooled(0.04, "exact").q_hat == np.inf
    # The third client has nothing to average; of ten, the ⌈0.8 · 11⌉-th is 17 and 16.
    assert calibration.pooled(0.2, "average").q_hat == 16.5
    with pytest.raises(UsageError, match="alpha"):
        calibration.pooled(0.0, "exact")


def test_every_quantile_rule_of_the_run_is_kept(graph, tmp_path):
    rules = ("average", "exact", "theorem1", "pooled", "tdigest")
    config = fedcover.Config(
        clients=4, methods=("fed",), alphas=(0.1, 0.3), seeds=1, rounds=3, quantiles=rules
    )
    finished = fedcover.run(graph, config)
    predictor = fedcover.load_predictor(finished.save(tmp_path / "run"))
    for (rule, alpha), rows in finished.sets.group_by("quantile", "alpha"):
        found = predictor.predict(graph, alpha, quantile=rule, only="test", allow_empty=True)
        assert found["set"].to_list() == rows["set"].to_list()
        yes = rule in ("exact", "theorem1")
        said = PROMISES["test"] if yes else f"no: the rule {rule} has no guarantee"
        assert set(found["promise"]) == {said}
    tables = [predictor.predict(graph, alpha) for alpha in (0.05, 0.2)]  # the first rule
    assert (tables[0]["size"] >= tables[1]["size"]).all()
    with pytest.raises(UsageError, match="quantile is 'median'; this predictor was calibrated for"):
        predictor.predict(graph, quantile="median")


def grown(graph, extra):
    """The graph with some more nodes, each a copy of node 0 tied to nodes 0 and 1."""
    n = int(graph.num_nodes)
    x, edges = feature_matrix(graph), graph.edge_index.numpy()
    more = np.array([[n + k for k in range(extra)] * 2, [0] * extra + [1] * extra])
    rows = np.concatenate([np.arange(n), np.zeros(extra, dtype=np.int64)])
    return assemble(
        x[rows],
        np.concatenate([edges, more], axis=1),
        np.concatenate([graph.y.numpy(), np.zeros(extra, dtype=np.int64)]),
        name="grown",
        label_names=graph.label_names,
        node_ids=[*map(str, graph.node_ids), *(f"new-{k}" for k in range(extra))],
    )


@pytest.mark.parametrize(
    ("method", "score", "hops"),
    [
        ("fed", "lac", 2),
        ("gen", "lac", 2),
        ("fed+prox+prior+mix", "lac", 2),
        ("central", "lac", 2),
        ("gen+prior", "lac", 2),
        ("fed", "daps", 3),
        ("fed", "slac", 3),
    ],
)
def test_nodes_added_later_get_sets_but_no_promise(method, score, hops, graph, folder, unchanged):
    predictor = fedcover.load_predictor(folder, method)
    later = grown(graph, 2)
    found, before = (predictor.predict(one, score=score) for one in (later, graph))
    assert found.filter(kind="new")["node"].to_list() == ["new-0", "new-1"]
    assert set(found.filter(kind="new")["promise"]) == {
        "no: it is new; --recalibrate can promise for it"
    }
    reached = reached_from(later, np.array([0, 1, -1, -2]), hops, _seen(predictor, found))
    # A change also spreads through generated neighbours, and to nodes that are similar.
    if "gen" not in method and score != "slac":
        far = found.with_columns(pl.Series("far", ~reached)).filter("far").drop("far")
        old = before.join(far.select("node"), on="node", maintain_order="left")
        assert far["set"].to_list() == old["set"].to_list()
        assert far["kind"].to_list() == old["kind"].to_list()
    unchanged(before, found)
    changed = found.with_columns(pl.Series("near", reached)).filter("near")
    assert not set(changed["kind"]) & {"test"}
    assert "changed" in set(changed["kind"])


@pytest.mark.parametrize("score", ["daps", "slac"])
def test_a_node_that_left_is_missed_by_those_that_looked_at_it(score, graph, folder, unchanged):
    predictor = fedcover.load_predictor(folder, "fed")
    keep = np.arange(1, int(graph.num_nodes))
    found, before = (predictor.predict(one, score=score) for one in (part(graph, keep), graph))
    unchanged(before, found)
    assert (found["kind"] == "changed").any()
    # Those that had it among their similar nodes may be anywhere at its client.
    # Three steps from its neighbours, a fourth by the score.
    far = reached_from(graph, np.array([0]), 4, _seen(predictor, before))[keep]
    there = ((found["kind"] == "changed").to_numpy() & ~far).any()
    assert there == (score == "slac")


@pytest.mark.parametrize("method", ["loc", "fed", "gen", "fed+prox+prior+mix", "central"])
def test_a_party_may_ask_about_its_own_nodes_alone(method, graph, folder, unchanged):
    predictor = fedcover.load_predictor(folder, method)
    own = np.flatnonzero(predictor.known.client == 1)
    found, before = (predictor.predict(one) for one in (part(graph, own), graph))
    assert found["node"].to_list() == [str(graph.node_ids[k]) for k in own]
    assert set(found["client"]) == {predictor.clients[1]}
    # Only a model that saw the edges to others misses them.
    assert ("changed" in set(found["kind"])) == (method == "central")
    unchanged(before, found)


@pytest.mark.parametrize(("method", "score"), [("fed", "lac"), ("gen", "aps"), ("fed", "slac")])
def test_the_order_of_nodes_does_not_matter(method, score, graph, folder):
    predictor = fedcover.load_predictor(folder, method)
    order = np.random.default_rng(0).permutation(int(graph.num_nodes))
    shuffled = part(graph, order)
    found, before = (predictor.predict(one, score=score) for one in (shuffled, graph))
    assert found.equals(before[order])
    assert (predictor.probs(shuffled) == predictor.probs(graph)[order]).all()


def test_a_model_of_gen_without_generated_neighbours_is_kept_and_predicts(graph, tmp_path):
    gen = {"prototypes": (2,), "shares": (0,), "link_rounds": 1, "vae": {"epochs": 1}}
    config = fedcover.Config(
        clients=3, methods=("gen", "fed"), alphas=(0.1,), seeds=1, rounds=3, resplits=2, gen=gen
    )
    where = fedcover.run(graph, config).save(tmp_path / "run")
    found, plain = (fedcover.load_predictor(where, name) for name in config.methods)
    assert found.generated == (None, None, None)
    sets = found.predict(graph)
    assert set(sets.filter(kind="test")["promise"]) == {PROMISES["test"]}
    assert sets.equals(plain.predict(graph))
    assert "stand for other clients' nodes" not in (where / "model/gen/MODEL_CARD.md").read_text()


def part(graph, nodes):
    """The graph of some of the nodes."""
    place = np.full(int(graph.num_nodes), -1)
    place[nodes] = np.arange(len(nodes))
    edges = place[graph.edge_index.numpy()]
    return assemble(
        feature_matrix(graph)[nodes],
        edges[:, (edges >= 0).all(axis=0)],
        graph.y.numpy()[nodes],
        name="part",
        label_names=graph.label_names,
        node_ids=[str(graph.node_ids[k]) for k in nodes],
    )


def _seen(predictor, table):
    """Whose edges a model sees together: a client's, or all."""
    return np.zeros(len(table)) if predictor.whole else table["client"].to_numpy()


def reached_from(graph, nodes, hops, client):
    reached = np.zeros(int(graph.num_nodes), dtype=bool)
    reached[nodes] = True
    source, target = graph.edge_index.numpy()
    within = client[source] == client[target]
    source, target = source[within], target[within]
    for _ in range(hops):
        reached[target[reached[source]]] = True
    return reached


def test_new_nodes_join_their_neighbours_client(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    found = predictor.predict(grown(graph, 1))
    mine = found.filter(pl.col("node").is_in([str(graph.node_ids[0]), str(graph.node_ids[1])]))
    assert found.filter(kind="new")["client"][0] in mine["client"].to_list()


def test_a_node_without_a_label_gets_a_set(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    known = predictor.known
    silent = replace(known, role=np.where(known.role == Role.TEST, -1, known.role).astype(np.int8))
    found = replace(predictor, known=silent).predict(graph, only=("unlabelled",))
    assert len(found) == (known.role == Role.TEST).sum()
    assert set(found["promise"]) == {PROMISES["unlabelled"]}


def test_a_graph_that_does_not_fit_is_refused(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    narrow = graph.clone()
    narrow.x = torch.ones(int(graph.num_nodes), 3)
    with pytest.raises(DataError, match="cora has 3 features; the predictor was trained with 1433"):
        predictor.predict(narrow)
    strange = graph.clone()
    strange.label_names = ["Alchemy", *graph.label_names[1:]]
    with pytest.raises(DataError, match="has the label 'Alchemy'"):
        predictor.predict(strange)
    with pytest.raises(UsageError, match="calibrated for lac, aps, raps, daps, slac"):
        predictor.predict(graph, score="dlac")
    assert set(predictor.predict(graph, only="test")["kind"]) == {"test"}
    with pytest.raises(UsageError, match="graph is a dict; it must be a PyG Data, as"):
        predictor.predict({})
    with pytest.raises(UsageError, match="only has 'tests'"):
        predictor.predict(graph, only=("tests",))


def test_labels_in_another_order_mean_the_same(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    turned = graph.clone()
    turned.label_names = graph.label_names[::-1]
    turned.y = len(graph.label_names) - 1 - graph.y
    assert predictor.predict(turned).equals(predictor.predict(graph))
