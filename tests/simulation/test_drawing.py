import numpy as np
import pytest

from fedcover import run
from fedcover.graphs.splits import Role
from fedcover.simulation import drawing
from fedcover.simulation.drawing import Shown, shown
from fedcover.simulation.repetition import prepare


@pytest.fixture
def repetition(toy, quick):
    return prepare(toy, quick(), seed=0)


def test_a_small_graph_is_shown_whole(repetition):
    seen = shown(repetition)
    assert seen.nodes.tolist() == list(range(120))
    assert (repetition.roles[seen.asked] == Role.TEST).all()
    assert len(seen.asked) == (repetition.roles == Role.TEST).sum()


def test_frames_say_what_the_cut_did(repetition):
    nodes, edges = shown(repetition).frames()
    graph, cut = repetition.graph, repetition.partition.cut_edges
    assert nodes["node"].to_list() == list(graph.node_ids)
    assert nodes["degree"].sum() == graph.edge_index.shape[1]
    assert nodes["lost"].sum() == cut.shape[1]
    assert (nodes["boundary"] == (nodes["lost"] > 0)).all()
    assert len(edges) == graph.edge_index.shape[1] // 2
    assert edges["cut"].sum() == cut.shape[1] // 2
    owner = dict(nodes.select("node", "client").iter_rows())
    for source, target, lost in edges.iter_rows():
        assert (owner[source] != owner[target]) == lost


def test_a_larger_graph_is_sampled_by_client_in_pieces_that_hang_together(repetition):
    seen = shown(repetition, most=30)
    assert len(seen.nodes) == 30
    assert len(set(seen.nodes.tolist())) == 30
    counts = np.bincount(repetition.partition.client[seen.nodes])
    assert counts.tolist() == [10, 10, 10]
    assert len(seen.asked) > 0
    _, edges = seen.frames()
    chance = Shown(repetition, np.arange(0, 120, 4)).frames()[1]
    assert (~edges["cut"]).sum() > (~chance["cut"]).sum()
    assert shown(repetition, most=30).nodes.tolist() == seen.nodes.tolist()


def test_more_clients_than_room_leave_some_out(toy, quick):
    seen = shown(prepare(toy, quick(clients=20), seed=0), most=8)
    assert len(seen.nodes) == 8


def test_too_many_edges_are_thinned(repetition, monkeypatch):
    whole = shown(repetition).frames()[1]
    monkeypatch.setattr(drawing, "MAX_EDGES", 9)
    few = shown(repetition).frames()[1]
    assert len(few) == few.n_unique() == 9
    assert len(few.join(whole, on=["source", "target", "cut"])) == 9
    assert few.equals(shown(repetition).frames()[1])


def test_scores_explain_the_sets(toy, quick):
    for empty in (True, False):
        config = quick(seeds=1, quantiles=("exact",), alphas=(0.3,), empty_sets=empty)
        finished = run(toy, config)
        key = ["method", "score"]
        q_hats = finished.results.select(*key, "q_hat")
        held = finished.scores.join(q_hats, on=key).sort(*key, "node")
        pairs = held.select("scores", "q_hat").iter_rows()
        counted = [sum(score <= q_hat for score in scores) for scores, q_hat in pairs]
        assert counted == finished.sets.sort(*key, "node")["size"].to_list()
        assert np.allclose([sum(p) for p in held["probs"]], 1, atol=1e-5)
