"""Graph scores of a repetition: every client mixes on its own graph, validation nodes weigh."""

import numpy as np
import pytest

from fedcover import conformal, run
from fedcover.algorithm.calibrate import diffusion
from fedcover.carriers.stacked import Stacked
from fedcover.graphs import Role
from fedcover.graphs.similar import cosines, similar_nodes
from fedcover.party import calibration
from fedcover.simulation.repetition import centre, federation, prepare

NAMES = ("dlac", "slac")  # daps and snaps differ from them in the base scores alone
CLIENTS = 3


@pytest.fixture
def repetition(toy, quick):
    return prepare(toy, quick(valid=0.4), 0)  # enough nodes to choose weights by


@pytest.fixture
def base(toy):
    """Base scores that neighbours can improve: the truth under much noise."""
    rng = np.random.default_rng(1)
    return (rng.random((120, 3)) - 0.4 * np.eye(3)[toy.y] + 0.4).astype(np.float32)


@pytest.fixture
def having(repetition, quick, monkeypatch):
    """``having(base)``: parties that have these base scores; with ``whole``, the one owner."""
    monkeypatch.setattr(conformal, "score", lambda _name, scores, *_: scores)

    def having(base, *, whole=False):
        config = quick(temperature="none")
        own = centre(repetition, config) if whole else federation(repetition, config)
        for party in own.parties:
            mine = slice(None) if whole else repetition.partition.client == party.number
            party.made["probs", "fed"] = base[mine]
        return own

    return having


def choose(own, name):
    """The weights that the parties agree on."""
    (weights,) = Stacked([own.carried]).carry([diffusion("fed", name, 3)])
    return weights


def scores_of(own, name, weights=None):
    """All nodes' scores, with these weights or those that the parties were told."""
    for party in own.parties:
        if weights is not None:
            party.tell(f"fed/weights of {name}", {"weights": np.array(weights)})
    return own.gathered([calibration.scores(party, "fed", name) for party in own.parties])


def means_by_loops(repetition, base):
    """Every node's means over its neighbours and over similar nodes, all at its own client."""
    client, edges = repetition.partition.client, repetition.graph.edge_index.numpy()
    x = repetition.graph.x.numpy().astype(np.float64)
    near_mean, alike_mean = base.astype(np.float64), base.astype(np.float64)
    for v in range(len(base)):
        near = [u for u, t in edges.T if t == v and client[u] == client[v]]
        if near:
            near_mean[v] = np.mean([base[u] for u in near], axis=0)
        cosine = x @ x[v] / (np.linalg.norm(x, axis=1) * np.linalg.norm(x[v]))
        others = [u for u in np.argsort(-cosine) if u != v and client[u] == client[v]]
        alike = [u for u in others if cosine[u] > 0][:20]
        alike_mean[v] = np.average(base[alike], axis=0, weights=cosine[alike])
    return near_mean, alike_mean


def combined(base, means, weights):
    near, alike = means
    own = 1 - weights.neighbours - weights.similar
    return own * base + weights.neighbours * near + weights.similar * alike


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_loops_over_a_clients_own_graph(repetition, base, having, name):
    similar = 0.3 if conformal.GRAPH_SCORES[name].similar else 0.0
    weights = conformal.Diffusion(0.4, similar)
    scores = scores_of(having(base), name, weights)
    expected = combined(base, means_by_loops(repetition, base), weights)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert scores.dtype == np.float32


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_validation_nodes_held_in_one_place(repetition, base, having, name):
    """The clients' choice is the one that somebody with all validation nodes would make."""
    own = having(base)
    weights = choose(own, name)
    grid = conformal.SNAPS_GRID if conformal.GRAPH_SCORES[name].similar else conformal.DAPS_GRID
    valid, y = repetition.roles == Role.VALID, repetition.graph.y.numpy()
    kept, means = [], means_by_loops(repetition, base)
    for candidate in grid:
        scores = combined(base, means, candidate)[valid]
        true = np.sort(scores[np.arange(len(scores)), y[valid]])
        q_hat = true[int(np.ceil(0.9 * len(true))) - 1]
        kept.append((scores <= q_hat + 1e-6).sum())
    assert kept[grid.index(weights)] == min(kept)
    assert weights == grid[int(np.argmin(kept))]
    expected = combined(base, means, weights)
    np.testing.assert_allclose(scores_of(own, name), expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_does_not_see_another_clients_scores(repetition, base, having, name):
    """Scores of another client's nodes, not validation nodes, change nothing here."""
    client = repetition.partition.client
    elsewhere = (client == 1) & (repetition.roles != Role.VALID)
    changed = base.copy()
    changed[elsewhere] = np.random.default_rng(8).random((elsewhere.sum(), 3), dtype=np.float32)
    before, after = (scores_of(having(b), name, (0.5, 0.0)) for b in (base, changed))
    assert np.array_equal(before[client != 1], after[client != 1])
    assert not np.array_equal(before[client == 1], after[client == 1])


@pytest.mark.parametrize("name", NAMES)
def test_the_owner_of_the_whole_graph_looks_across_the_cuts(repetition, base, having, name):
    cut = scores_of(having(base), name, (0.4, 0.0))
    scores = scores_of(having(base, whole=True), name, (0.4, 0.0))
    means = conformal.graph_scores(base, repetition.graph.edge_index.numpy())
    expected = means.combined(conformal.Diffusion(0.4))
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert not np.allclose(scores, cut, atol=1e-3)


def test_similar_nodes_of_the_cut_and_of_the_whole_graph_are_kept_apart(repetition, base, having):
    graph = repetition.graph
    cut = scores_of(having(base), "slac", (0.0, 0.5))
    scores = scores_of(having(base, whole=True), "slac", (0.0, 0.5))
    x = graph.x.numpy()
    alike = similar_nodes(x)
    means = conformal.graph_scores(base, graph.edge_index.numpy(), alike, cosines(x, alike))
    assert np.array_equal(scores, means.combined(conformal.Diffusion(0.0, 0.5)))
    assert not np.allclose(cut, scores, atol=1e-3)


@pytest.mark.parametrize(("name", "candidates"), [("daps", 10), ("slac", 21)])
def test_counts_leave_a_client_and_the_chosen_weights_come_back(base, having, name, candidates):
    own = having(base)
    choose(own, name)
    ledger = own.carried.ledger
    assert {entry.part for entry in ledger} == {f"fed/weights of {name}"}
    sent = [(e.party, e.round, e.rounds, e.shape) for e in ledger if e.direction == "up"]
    counts = [(k, 0, 4, (candidates, 256)) for k in range(CLIENTS)]
    assert sent == counts + [(k, 4, 1, (candidates,)) for k in range(CLIENTS)]
    back = [e for e in ledger if e.array == "weights"]
    assert [(e.direction, e.party, e.shape) for e in back] == [
        ("down", k, (2,)) for k in range(CLIENTS)
    ]


def test_without_validation_nodes_a_graph_score_is_its_base_score(toy, quick):
    config = quick(
        valid=0.0, methods=("fed",), scores=("lac", "dlac", "slac"), quantiles=("exact",), seeds=1
    )
    finished = run(toy, config)
    chosen = finished.info["chosen_on_validation"]["fed"]
    assert chosen["dlac"] == chosen["slac"] == [{"neighbours": 0.0, "similar": 0.0}]
    lac, *others = (finished.results.filter(score=name)["q_hat"] for name in config.scores)
    assert all(other.equals(lac) for other in others)


def test_a_run_has_every_graph_score_and_says_what_was_chosen(toy, quick):
    config = quick(
        methods=("fed", "central"), scores=("lac", *conformal.GRAPH_SCORES), quantiles=("exact",)
    )
    finished = run(toy, config)
    assert set(finished.results["score"]) == {"lac", *conformal.GRAPH_SCORES}
    for method in config.methods:
        chosen = finished.info["chosen_on_validation"][method]
        for name in conformal.GRAPH_SCORES:
            assert len(chosen[name]) == config.seeds
            assert all(set(weights) == {"neighbours", "similar"} for weights in chosen[name])
    alone = run(toy, quick(methods=("fed",), scores=("slac",), quantiles=("exact",)))
    own = finished.results.filter(method="fed", score="slac").drop("train_seconds")
    assert alone.results.drop("train_seconds").equals(own)
