import numpy as np
import pytest
from scipy import sparse

from fedcover.experiment.methods import METHODS, Repetition
from fedcover.federation import Trained
from fedcover.graphs import Role, feature_matrix, partition, split


@pytest.fixture
def repetition(toy):
    cut = partition(toy, 3, "random", seed=5)
    return Repetition(toy, cut, split(cut.client, np.random.default_rng(5)), seed=5)


def edges_of(parts):
    """The edges of client graphs in the whole graph's numbers."""
    return [pair for part in parts for pair in part.nodes[part.edge_index].T.tolist()]


def test_central_has_every_node_and_edge(repetition):
    (part,) = METHODS["central"].parts(repetition)
    assert part.nodes.tolist() == list(range(120))
    assert edges_of([part]) == repetition.graph.edge_index.T.tolist()


@pytest.mark.parametrize("name", ["loc", "fed"])
def test_clients_and_cut_edges_make_up_the_graph(repetition, name):
    parts = METHODS[name].parts(repetition)
    inside, cut = edges_of(parts), repetition.partition.cut_edges.T.tolist()
    assert cut
    assert sorted(inside + cut) == sorted(repetition.graph.edge_index.T.tolist())
    assert sorted(np.concatenate([part.nodes for part in parts])) == list(range(120))
    for k, part in enumerate(parts):
        assert (repetition.partition.client[part.nodes] == k).all()


def test_only_fed_and_central_average_and_only_central_stays_at_home():
    assert {name: method.average for name, method in METHODS.items()} == {
        "loc": False,
        "fed": True,
        "central": True,
    }
    assert {name for name, method in METHODS.items() if not method.federated} == {"central"}


@pytest.mark.parametrize("name", METHODS)
def test_a_client_gets_its_own_nodes_and_roles(repetition, name):
    method = METHODS[name]
    federation = method.federation(repetition)
    assert federation.seed == 5
    x = feature_matrix(repetition.graph)
    for part, client in zip(method.parts(repetition), federation.clients, strict=True):
        own = client.x.toarray() if sparse.issparse(client.x) else client.x
        assert np.array_equal(own, x[part.nodes])
        assert client.y.tolist() == repetition.graph.y[part.nodes].tolist()
        roles = repetition.roles[part.nodes]
        assert client.train.tolist() == np.flatnonzero(roles == Role.TRAIN).tolist()
        assert client.valid.tolist() == np.flatnonzero(roles == Role.VALID).tolist()


@pytest.mark.parametrize("name", METHODS)
def test_logits_return_to_the_graphs_order(repetition, name):
    method = METHODS[name]
    rows = [np.stack([p.nodes, p.nodes + 0.5], axis=1) for p in method.parts(repetition)]
    trained = Trained([], [r.astype(np.float32) for r in rows], np.zeros(1), 0, 0.0)
    logits = method.logits(repetition, trained)
    assert logits[:, 0].tolist() == list(range(120))
    assert (logits[:, 1] - logits[:, 0] == 0.5).all()
