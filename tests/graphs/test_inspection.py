"""Facts counted by hand and by networkx, and the arithmetic of the promise."""

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from fedcover.conformal import exact_rank
from fedcover.graphs import load
from fedcover.graphs.assemble import assemble, undirected
from fedcover.graphs.inspection import inspect
from fedcover.graphs.partition import Partition, partition
from fedcover.graphs.splits import NO_ROLE, Role, split


def divided(graph: Data, client: list[int], names: tuple[str, ...]) -> Partition:
    owner = np.array(client)
    edges = graph.edge_index.numpy()
    cut = edges[:, owner[edges[0]] != owner[edges[1]]]
    return Partition(owner, len(names), "given", 0, cut, names)


@pytest.fixture
def town() -> Data:
    """Seven nodes: a triangle and a pair joined by one edge, a pair apart, one node alone.

    The edges are 0-1, 1-2, 0-2 | 2-3 | 3-4, and 5 and 6 have none.
    """
    return assemble(
        np.array([[1, 0, 0.5]] * 5 + [[0, 0, 2.0]] * 2),
        np.array([[0, 1, 0, 2, 3], [1, 2, 2, 3, 4]]),
        np.array([0, 0, 1, 1, 1, 0, 2]),
        name="town",
        label_names=["a", "b", "c"],
        node_ids=np.arange(7),
    )


def test_the_graph_is_counted_as_by_hand(town):
    found = inspect(town, divided(town, [0] * 7, ("all",)), None).graph
    assert (found.name, found.nodes, found.edges) == ("town", 7, 5)
    assert (found.isolated, found.components, found.largest_component) == (2, 3, 5)
    assert found.labels == {"a": 3, "b": 3, "c": 1}
    assert found.unlabelled == 0
    assert found.homophily == pytest.approx(3 / 5)  # 0-1, 2-3, 3-4
    # Column 0 holds 0 and 1, column 1 only 0, column 2 other numbers; 5 + 7 of 21 are not zero.
    features = found.features
    assert (features.columns, features.binary, features.numeric) == (3, 2, 1)
    assert features.filled == pytest.approx(12 / 21)
    assert not features.sparse
    assert found.missing == {}


def test_every_client_is_counted_as_by_hand(town):
    north, south = inspect(
        town, divided(town, [0, 0, 0, 1, 1, 1, 0], ("north", "south")), None
    ).clients
    assert (north.name, north.nodes, north.edges, north.cut_edges) == ("north", 4, 3, 1)
    assert (south.name, south.nodes, south.edges, south.cut_edges) == ("south", 3, 1, 1)
    assert (north.cut_share, south.cut_share) == (1 / 4, 1 / 2)
    assert (north.homophily, south.homophily) == (pytest.approx(1 / 3), 1.0)
    assert north.labels == {"a": 2, "b": 1, "c": 1}
    assert south.labels == {"a": 1, "b": 2, "c": 0}
    # Labels: north a a b c, south b b a, all 3/7 3/7 1/7.
    apart = (abs(2 / 4 - 3 / 7) + abs(1 / 4 - 3 / 7) + abs(1 / 4 - 1 / 7)) / 2
    assert north.label_distance == pytest.approx(apart)
    apart = (abs(1 / 3 - 3 / 7) + abs(2 / 3 - 3 / 7) + abs(0 - 1 / 7)) / 2
    assert south.label_distance == pytest.approx(apart)
    assert north.calibration is None


def test_unlabelled_nodes_are_counted_apart(town):
    town.y = torch.tensor([0, -1, 1, 1, 1, 0, -1])
    found = inspect(town, divided(town, [0, 0, 0, 1, 1, 1, 0], ("north", "south")), None)
    assert found.graph.unlabelled == 2
    assert found.graph.labels == {"a": 2, "b": 3, "c": 0}
    assert found.graph.homophily == pytest.approx(2 / 3)  # of 0-2, 2-3, 3-4
    assert [client.labelled for client in found.clients] == [2, 3]
    assert found.clients[0].homophily == 0.0  # 0-2 alone
    said = " ".join(found.sentences())
    assert "2 nodes without a label" in said
    assert "No node has the label c" in said
    assert "2 nodes without an edge" in said


def test_a_client_without_edges_or_labels_has_no_shares(town):
    town.y[6] = -1
    alone = inspect(town, divided(town, [0] * 6 + [1], ("many", "one")), None).clients[1]
    assert (alone.labelled, alone.label_distance, alone.homophily) == (0, None, None)
    assert alone.cut_share == 0.0


def test_sparse_features_are_read_as_dense_ones_are():
    rng = np.random.default_rng(3)
    x = np.zeros((40, 30))
    x[np.arange(40), rng.integers(0, 30, 40)] = 1.0
    x[0, 4], x[1, 5] = 2.5, -1.0
    graph = assemble(
        x,
        rng.integers(0, 40, (2, 60)),
        np.arange(40) % 2,
        name="words",
        label_names=["a", "b"],
        node_ids=np.arange(40),
    )
    features = inspect(graph, divided(graph, [0] * 40, ("all",)), None).graph.features
    assert graph.x.layout == torch.sparse_csr
    assert features.sparse
    assert features.numeric == 2
    assert features.filled == pytest.approx(np.count_nonzero(x) / x.size)


def test_networkx_counts_the_same(random_graph):
    parts = partition(random_graph, 3)
    found = inspect(random_graph, parts, None)
    source, target = random_graph.edge_index.numpy()
    whole = networkx.Graph()
    whole.add_nodes_from(range(60))
    whole.add_edges_from(zip(source.tolist(), target.tolist(), strict=True))
    y = dict(enumerate(random_graph.y.tolist()))
    networkx.set_node_attributes(whole, y, "y")
    assert found.graph.edges == whole.number_of_edges()
    assert found.graph.components == networkx.number_connected_components(whole)
    assert found.graph.isolated == networkx.number_of_isolates(whole)
    mixing = networkx.attribute_mixing_matrix(whole, "y")
    assert found.graph.homophily == pytest.approx(np.trace(mixing))
    for k, client in enumerate(found.clients):
        nodes = np.flatnonzero(parts.client == k).tolist()
        assert client.edges == whole.subgraph(nodes).number_of_edges()
        assert client.cut_edges == networkx.cut_size(whole, nodes)


KNOWN = np.array([[2, 3, 2, 5], [3, 2, 5, 2]])  # 2-3 and 2-5, both ways


@pytest.fixture
def halves(town) -> Partition:
    """Nodes 0, 1, 2 and 6 in the north, 3, 4 and 5 in the south; 2-5 is an edge, too."""
    edges = np.concatenate([town.edge_index.numpy(), [[2, 5], [5, 2]]], axis=1)
    town.edge_index = torch.tensor(undirected(edges, 7))
    return divided(town, [0, 0, 0, 1, 1, 1, 0], ("north", "south"))


def test_known_edges_are_counted_by_client_and_by_what_they_can_bring(town, halves):
    found = inspect(town, halves, None, known=KNOWN, least=2)
    north, south = found.clients
    assert (found.known_edges, found.least) == (2, 2)
    assert (north.links, south.links) == ({"south": 2}, {"north": 2})
    assert (north.linked, south.linked) == (1, 0)  # node 2 has two
    assert (north.cut_edges, south.cut_edges) == (2, 2)
    assert found.graph.homophily == pytest.approx(3 / 6)  # what is known of edges changes no label
    said = " ".join(found.sentences())
    assert "2 cut edges, 33.3% of all; both ends know 2. 1 node (14.3%) with 2 or more" in said
    assert "no client sees them" not in said
    one = inspect(town, halves, None, known=KNOWN, least=1).clients
    assert [client.linked for client in one] == [1, 2]


def test_where_nobody_knows_cut_edges_nothing_is_said_of_links(town, halves):
    found = inspect(town, halves, None)
    assert [(client.links, client.linked) for client in found.clients] == [(None, None)] * 2
    assert "no client sees them" in " ".join(found.sentences())
    none = inspect(town, halves, None, known=KNOWN[:, :0], least=3)
    assert [(client.links, client.linked) for client in none.clients] == [({}, 0)] * 2
    assert "both ends know 0. 0 nodes (0.0%) with 3 or more" in " ".join(none.sentences())


def test_links_that_are_not_used_are_facts_and_sentences(town, halves):
    town.listed_once, town.absent = {"a and b": 3}, {"west": 2}
    town.client_names = ["a", "b"]
    said = " ".join(inspect(town, halves, None, known=KNOWN).sentences())
    assert "3 links are listed by one party alone and not used, a and b (3)" in said
    assert "2 links are not used: there is no folder of west (2)." in said


def test_networkx_counts_known_edges_the_same(random_graph):
    parts = partition(random_graph, 3, "random")
    known = parts.cut_edges[:, parts.cut_edges.sum(axis=0) % 3 > 0]
    found = inspect(random_graph, parts, None, known=known, least=3)
    whole = networkx.Graph(known.T.tolist())
    for k, client in enumerate(found.clients):
        own = [node for node in whole if parts.client[node] == k]
        far = [parts.client[other] for node in own for other in whole[node]]
        assert client.links == {str(j): far.count(j) for j in range(3) if j != k}
        assert client.linked == sum(whole.degree(node) >= 3 for node in own)


def roles_with(counts: list[int], test: list[int]) -> tuple[list[int], np.ndarray]:
    """Clients and roles of nodes with so many calibration and test nodes each, and one to train."""
    client, roles = [], []
    for k, (n, m) in enumerate(zip(counts, test, strict=True)):
        client += [k] * (n + m + 1)
        roles += [Role.CALIB] * n + [Role.TEST] * m + [Role.TRAIN]
    return client, np.array(roles, dtype=np.int8)


def promised(counts, alphas, make_graph, test=None):
    client, roles = roles_with(counts, test or counts)
    graph = make_graph(len(client))
    names = tuple(f"k{k}" for k in range(len(counts)))
    return inspect(graph, divided(graph, client, names), roles, alphas)


def test_the_promise_at_its_edge(make_graph):
    # alpha = 0.1: ⌈0.9 N⌉ + 1 ≤ N from N = 10 on, however many clients; one client alone needs 9.
    enough = promised([9, 1], [0.1], make_graph)
    assert (enough.n_calibration, enough.asked, enough.slack) == (10, 10, pytest.approx(2 / 10))
    (promise,) = enough.promises
    assert (promise.holds, promise.needed, promise.needed_alone) == (True, 10, 9)
    assert promise.band == pytest.approx((0.9, 1.1))
    assert promise.too_small == ("k1",)
    assert [client.calibration for client in enough.clients] == [9, 1]
    said = " ".join(enough.sentences())
    assert "alpha = 0.1: enough calibration nodes; expect between 0.9 and 1.0000 of the" in said
    assert "client k1 has fewer than the 9 calibration nodes" in said
    assert "the promise for all clients together stands" in said

    short = promised([8, 1], [0.1], make_graph)
    (promise,) = short.promises
    assert (promise.holds, promise.needed, promise.band) == (False, 10, (1.0, 1.0))
    said = " ".join(short.sentences())
    assert "too few calibration nodes, 9; at least 10 are needed" in said
    assert "stands" not in said


@settings(max_examples=60, deadline=None)
@given(
    alpha=st.floats(0.005, 0.9),
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=6),
)
def test_the_least_number_is_the_least(alpha, counts):
    client, roles = roles_with(counts, counts)
    n = len(client)
    graph = assemble(
        np.ones((n, 1)),
        np.empty((2, 0), np.int64),
        np.arange(n) % 2,
        name="bare",
        label_names=["a", "b"],
        node_ids=np.arange(n),
    )
    names = tuple(map(str, range(len(counts))))
    found = inspect(graph, divided(graph, client, names), roles, [alpha])
    (promise,) = found.promises

    def rank(n: int) -> int:
        return exact_rank(alpha, n) if len(counts) == 1 else exact_rank(alpha, n, 0) + 1

    N = sum(counts)
    assert promise.holds == (rank(N) <= N) == (promise.needed <= N)
    assert rank(promise.needed) <= promise.needed
    assert promise.needed == 1 or rank(promise.needed - 1) > promise.needed - 1
    small = tuple(str(k) for k, c in enumerate(counts) if exact_rank(alpha, c) > c)
    assert promise.too_small == small


def test_test_nodes_elsewhere_than_calibration_nodes_make_the_band_wider(make_graph):
    found = promised([20, 20], [0.1], make_graph, test=[30, 10])
    assert found.slack == pytest.approx(2 * 3 / 4 / 20)  # 2 max p_k/n_k
    assert found.promises[0].band == pytest.approx((0.9, 0.9 + 2 * 3 / 4 / 20))
    nearly_one = promised([20, 20], [0.1], make_graph, test=[39, 1])
    # Σ p_k/(n_k + 1) is less than max p_k/n_k: then the band is the largest of these and their sum.
    assert nearly_one.slack == pytest.approx(39 / 40 / 21 + 1 / 21)
    alike = promised([20, 20], [0.1], make_graph)
    assert alike.slack == pytest.approx(2 / 40)
    for one in (found, alike):
        assert "of the test nodes to be covered, on average over them." in " ".join(one.sentences())


def test_where_few_calibration_nodes_stand_for_most_that_are_asked_about_it_is_told(make_graph):
    # 1 − Σ p_k/(n_k + 1) must reach 0.9: the client with a share of 0.975 must have nine nodes.
    for least, holds in ((8, False), (9, True)):
        (promise,) = (found := promised([30, least], [0.1], make_graph, test=[1, 39])).promises
        assert promise.holds == holds
        said = " ".join(found.sentences())
        assert ("more where clients with few of them have many of the nodes asked" in said) != holds


def test_the_promise_is_for_nodes_without_a_label_if_there_are_some(make_graph):
    client, roles = roles_with([20, 20], [5, 5])
    client, roles = [*client, *[1] * 30], np.append(roles, [NO_ROLE] * 30).astype(np.int8)
    graph = make_graph(len(client))
    graph.y[-30:] = -1
    found = inspect(graph, divided(graph, client, ("k", "l")), roles, [0.2])
    assert (found.asked, found.slack) == (30, pytest.approx(1 / 21))  # client l's alone: 1/(n + 1)
    assert "of the nodes without a label to be covered, on average over them." in " ".join(
        found.sentences()
    )


def test_classes_and_groups_that_are_too_small_for_themselves_are_named(make_graph):
    # Labels go even, odd, even, …: of 9 calibration nodes at one client 5 and 4. At 0.2 a group
    # needs 4 nodes at one client, at 0.17 it needs 5.
    client, roles = roles_with([9], [9])
    member = np.where(np.arange(len(client)) < 3, 1, 0)  # a group of three
    graph = make_graph(len(client), group=member, group_names=["many", "few"])
    found = inspect(graph, divided(graph, client, ("k",)), roles, [0.2, 0.17])
    wide, narrow = found.promises
    assert (wide.small_classes, wide.small_groups) == ((), ("few",))
    assert (narrow.small_classes, narrow.small_groups) == (("odd",), ("few",))
    said = " ".join(found.sentences())
    assert "alpha = 0.17: with --calibrate class, odd would have too few" in said
    assert "alpha = 0.2: with --calibrate class" not in said
    assert "alpha = 0.2: with --calibrate group, few would have too few" in said
    # The same four nodes at two clients are too few: there a group needs 1/α, five.
    client = [k % 2 for k in range(len(client))]
    (apart,) = inspect(graph, divided(graph, client, ("k", "l")), roles, [0.2]).promises
    assert apart.small_classes == ()  # labels and clients alternate alike: one client each
    client = [k // 2 % 2 for k in range(len(client))]
    (apart,) = inspect(graph, divided(graph, client, ("k", "l")), roles, [0.2]).promises
    assert apart.small_classes == ("odd",)


def test_many_small_clients_are_counted_not_listed(make_graph):
    found = promised([3] * 8, [0.1], make_graph)
    assert "clients k0, k1, k2, k3, k4 and 3 more have fewer" in " ".join(found.sentences())


def test_the_counts_are_those_of_the_split(random_graph):
    parts = partition(random_graph, 3)
    roles = split(parts.client, np.random.default_rng(0))
    found = inspect(random_graph, parts, roles, [0.2])
    assert found.n_calibration == int((roles == Role.CALIB).sum())
    for k, client in enumerate(found.clients):
        assert client.calibration == int(((parts.client == k) & (roles == Role.CALIB)).sum())


def test_empty_values_are_counted_by_column(tmp_path):
    nodes = "id,label,age,ward,kids\n1,x,3,n,1\n2,y,,,0\n3,x,,s,1\n4,y,5,n,0\n"
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    graph = load(tmp_path, missing="impute")
    found = inspect(graph, divided(graph, [0] * 4, ("all",)), None)
    assert found.graph.missing == {"age": 2, "ward": 1}
    assert any(text.startswith("3 empty values in age, ward: ") for text in found.sentences())


def test_cut_edges_are_said_not_to_touch_the_promise(town):
    halves = inspect(town, divided(town, [0, 0, 0, 1, 1, 1, 0], ("north", "south")), None)
    said = " ".join(halves.sentences())
    assert "1 cut edge, 20.0% of all: no client sees them" in said
    assert "the promise does not rest on them" in said
    whole = inspect(town, divided(town, [0] * 7, ("all",)), None)
    assert "cut edge" not in " ".join(whole.sentences())


def test_clients_that_the_graph_names_in_vain_are_told(random_graph, make_graph):
    own = make_graph(40, client=np.arange(40) % 3, client_names=["a", "b", "c"])
    said = inspect(own, partition(own, 2), None).sentences()
    assert any(text.startswith("The graph names clients of its own, 3, which") for text in said)
    for graph, parts in ((own, partition(own, None, "given")), (random_graph, None)):
        found = inspect(graph, parts or partition(graph, 2), None)
        assert "clients of its own" not in " ".join(found.sentences())
