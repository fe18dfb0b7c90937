import itertools

import networkx
import numpy as np
import pymetis
import pytest
import torch
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError
from fedcover.graphs import boundary, client_graphs, load, partition
from fedcover.graphs.partition import MAX_SEED

DRAWN = ["metis", "louvain", "random", "label-skew"]


@pytest.fixture(scope="module")
def cora():
    return load("cora")


@pytest.fixture
def with_clients(make_graph):
    return make_graph(
        5,
        [(0, 1), (1, 2), (2, 3), (3, 4)],
        client=np.array([1, 0, 0, 1, 1]),
        client_names=["north", "south"],
    )


def edge_set(edges):
    return set(map(tuple, np.asarray(edges).T.tolist()))


@pytest.mark.parametrize("method", DRAWN)
@pytest.mark.parametrize("clients", [1, 3, 10])
def test_clients_and_cut_make_up_the_graph(cora, method, clients):
    division = partition(cora, clients, method)
    parts = client_graphs(cora, division)
    assert len(parts) == clients == division.clients
    assert np.array_equal(np.sort(np.concatenate([p.nodes for p in parts])), np.arange(2485))
    together = [edge_set(division.cut_edges)] + [edge_set(p.nodes[p.edge_index]) for p in parts]
    assert sum(map(len, together)) == cora.num_edges
    assert set().union(*together) == edge_set(cora.edge_index)
    for k, part in enumerate(parts):
        assert (division.client[part.nodes] == k).all()
        assert (np.diff(part.nodes) > 0).all()
    source, target = division.cut_edges
    assert (division.client[source] != division.client[target]).all()


@pytest.mark.parametrize("method", DRAWN)
def test_seeds(cora, method):
    first, again = partition(cora, 5, method, seed=0), partition(cora, 5, method, seed=0)
    assert np.array_equal(first.client, again.client)
    others = [partition(cora, 5, method, seed=s).client.tobytes() for s in (0, 1, 2, MAX_SEED)]
    assert len(set(others)) == 4  # 0 and 1 too, which the C library's rand() would take as one


def test_metis_cuts_little_and_balances(cora):
    metis, random = partition(cora, 10, "metis"), partition(cora, 10, "random")
    assert metis.cut_edges.shape[1] < 0.15 * cora.num_edges
    assert random.cut_edges.shape[1] > 0.8 * cora.num_edges
    sizes = np.bincount(metis.client)
    assert sizes.max() <= 1.04 * 2485 / 10  # METIS allows 3 %
    assert np.ptp(np.bincount(random.client)) <= 1


def test_metis_is_k_way_also_for_few_clients(cora):
    source, target = cora.edge_index.numpy()
    adjacency = pymetis.CSRAdjacency(np.searchsorted(source, np.arange(2486)), target)
    k_way, bisection = (
        pymetis.part_graph(5, adjacency, recursive=recursive, options=pymetis.Options(seed=8))
        for recursive in (False, True)
    )
    assert k_way.edge_cuts != bisection.edge_cuts
    assert partition(cora, 5, seed=7).cut_edges.shape[1] == 2 * k_way.edge_cuts


def test_metis_finds_the_bridge(two_triangles):
    division = partition(two_triangles, 2)
    assert edge_set(division.cut_edges) == {(2, 3), (3, 2)}
    assert boundary(two_triangles, division).tolist() == [False, False, True, True, False, False]


def test_louvain_never_divides_a_community(cora):
    division = partition(cora, 4, "louvain", seed=3)
    whole = networkx.Graph(cora.edge_index.numpy().T.tolist())
    whole = networkx.from_scipy_sparse_array(networkx.to_scipy_sparse_array(whole, range(2485)))
    for community in networkx.community.louvain_communities(whole, seed=3):
        assert len(set(division.client[list(community)])) == 1


def test_louvain_packs_the_largest_first(make_graph):
    sizes, edges, first = [3, 7, 4, 5], [], 0
    for size in sizes:  # cliques, each a community
        edges += itertools.combinations(range(first, first + size), 2)
        first += size
    division = partition(make_graph(19, edges), 2, "louvain")
    assert division.client.tolist() == [0] * 3 + [0] * 7 + [1] * 4 + [1] * 5


def test_client_graphs_by_hand(with_clients):
    north, south = client_graphs(with_clients, partition(with_clients, method="given"))
    assert north.nodes.tolist() == [1, 2]
    assert north.edge_index.tolist() == [[0, 1], [1, 0]]
    assert south.nodes.tolist() == [0, 3, 4]
    assert south.edge_index.tolist() == [[1, 2], [2, 1]]


def test_client_without_edges(make_graph):
    graph = make_graph(4, [(0, 1)], client=np.array([0, 0, 1, 1]), client_names=["a", "b"])
    parts = client_graphs(graph, partition(graph, method="given"))
    assert [part.edge_index.shape for part in parts] == [(2, 2), (2, 0)]


def test_given(with_clients):
    division = partition(with_clients, method="given")
    assert division.clients == 2
    assert division.names == ("north", "south")
    assert edge_set(division.cut_edges) == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert np.array_equal(partition(with_clients, 2, "given").client, division.client)


@pytest.mark.parametrize("method", ["metis", "random"])
def test_graph_without_edges(make_graph, method):
    division = partition(make_graph(9), 3, method)
    assert set(division.client) == {0, 1, 2}
    assert division.cut_edges.shape == (2, 0)


@pytest.mark.parametrize(
    ("clients", "method", "seed", "error", "fragment"),
    [
        (0, "metis", 0, UsageError, "clients is 0"),
        (-3, "random", 0, UsageError, "clients is -3"),
        (2.0, "metis", 0, UsageError, "clients is 2.0"),
        (True, "metis", 0, UsageError, "clients is True"),
        (None, "metis", 0, UsageError, "clients is None"),
        (7, "random", 0, UsageError, "clients is 7, but tiny has only 6 nodes"),
        (
            2,
            "meti",
            0,
            UsageError,
            "'meti', but must be one of metis, louvain, random, label-skew, given",
        ),
        (2, "metis", -1, UsageError, "seed is -1"),
        (2, "metis", 2**31, UsageError, "seed is 2147483648"),
        (2, "metis", 0.5, UsageError, "seed is 0.5"),
        (2, "given", 0, DataError, "tiny has no client column"),
        (6, "metis", 0, DataError, "Client 0 has no nodes after partition 'metis' into 6"),
        (3, "louvain", 0, DataError, "Louvain communities of tiny is 2, fewer than 3"),
    ],
)
def test_refusals(two_triangles, clients, method, seed, error, fragment):
    with pytest.raises(error) as caught:
        partition(two_triangles, clients, method, seed)
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("beta", [0, -1.0, float("nan"), float("inf"), "0.5", True, None])
def test_beta_is_a_positive_number(two_triangles, beta):
    with pytest.raises(UsageError) as caught:
        partition(two_triangles, 2, "label-skew", beta=beta)
    assert str(caught.value) == f"beta is {beta!r}, but must be a positive number."


def test_given_refuses_another_number(with_clients):
    with pytest.raises(UsageError, match=r"clients is 3, but the client column of tiny has 2"):
        partition(with_clients, 3, "given")


def test_given_refuses_an_empty_client(with_clients):
    with_clients.client_names = ["north", "south", "west"]
    with pytest.raises(DataError) as caught:
        partition(with_clients, method="given")
    assert str(caught.value) == (
        "Client west has no nodes: it is among client_names, but no entry of client is 2; "
        "number the clients without a gap."
    )


def test_the_other_methods_ask_for_fewer_clients(two_triangles):
    with pytest.raises(DataError, match=r"into 6 clients; take fewer clients\.$"):
        partition(two_triangles, 6, "metis")


@pytest.mark.parametrize("method", DRAWN)
def test_an_edge_out_of_range_is_refused_and_not_followed(two_triangles, method):
    two_triangles.edge_index[1, 3] = 70  # METIS would read beyond its arrays
    with pytest.raises(DataError, match="edge_index has node 70 at position 3; the graph has 6"):
        partition(two_triangles, 2, method)


def test_a_plain_graph_in_any_order_is_divided_as_the_assembled_one(two_triangles):
    order = torch.tensor([9, 3, 0, 12, 5, 1, 13, 7, 2, 8, 4, 11, 6, 10])
    plain = Data(
        x=two_triangles.x, edge_index=two_triangles.edge_index[:, order], y=two_triangles.y
    )
    expected = partition(two_triangles, 2)
    assert np.array_equal(partition(plain, 2).client, expected.client)
    assert edge_set(partition(plain, 2).cut_edges) == edge_set(expected.cut_edges)
