"""Where new nodes belong, and how far a change reaches."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcover.predictor.nodes import Generated, _joined, _reached, located, touched


def test_new_nodes_go_where_most_neighbours_are(make_graph):
    # 0, 1 are at client 0 and 2, 3, 4 at client 1; 5 … 9 are new.
    edges = [(5, 0), (5, 2), (5, 3), (6, 1), (6, 4), (7, 5), (8, 7)]
    graph = make_graph(10, edges)
    client = np.array([0, 0, 1, 1, 1, -1, -1, -1, -1, -1])
    # 5 by majority, 6 at the first of two equals, 7 and 8 behind 5, 9 alone at the smaller.
    assert _joined(graph, client, 2).tolist() == [0, 0, 1, 1, 1, 1, 0, 1, 1, 0]
    assert client[5] == -1


def test_a_long_chain_of_new_nodes_is_followed_to_its_end(make_graph):
    count = 400
    graph = make_graph(count, [(k, k + 1) for k in range(count - 1)])
    client = np.full(count, -1)
    client[0] = 2
    assert (_joined(graph, client, 3) == 2).all()


def graph_of(edges):
    """As much of a graph as joining needs; edges go one way, may repeat and may be loops."""
    return SimpleNamespace(edge_index=SimpleNamespace(numpy=lambda: edges))


def joined_by_looking_at_all_edges(edges, client, clients):
    """Every step by its definition: all that hear of a client join one, until nobody does."""
    client = client.copy()
    smallest = int(np.bincount(client[client >= 0], minlength=clients).argmin())
    while True:
        votes = {}
        for source, target in edges.T.tolist():
            if client[target] < 0 <= client[source]:
                votes.setdefault(target, [0] * clients)[client[source]] += 1
        if not votes:
            break
        for node, counts in votes.items():
            client[node] = counts.index(max(counts))
    client[client < 0] = smallest
    return client


@st.composite
def partly_placed(draw):
    nodes, clients = draw(st.integers(1, 14)), draw(st.integers(1, 4))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=40))
    new = st.just(-1) | st.integers(-1, clients - 1)  # more than half of the nodes
    client = draw(st.lists(new, min_size=nodes, max_size=nodes))
    both_ways = edges + [(b, a) for a, b in edges] if draw(st.booleans()) else edges
    return np.array(both_ways, dtype=np.int64).reshape(-1, 2).T, np.array(client), clients


@given(partly_placed())
def test_new_nodes_join_step_by_step(drawn):
    edges, client, clients = drawn
    found = _joined(graph_of(edges), client, clients)
    assert found.tolist() == joined_by_looking_at_all_edges(edges, client, clients).tolist()


class Looked(np.ndarray):
    """An array, and all that comes of it, whose entries are counted when they are looked up."""

    entries = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        Looked.entries += np.size(found)
        return found


def looked_up(count):
    """In joining a chain of so many new nodes."""
    before, after = np.arange(count), np.arange(1, count + 1)
    edges = np.stack([np.r_[before, after], np.r_[after, before]]).view(Looked)
    Looked.entries = 0
    _joined(graph_of(edges), np.array([0] + [-1] * count), 1)
    return Looked.entries


def test_a_chain_twice_as_long_is_twice_the_work():
    assert 0 < looked_up(200) < 3 * looked_up(100)  # all edges in each step would be four times


def test_a_change_reaches_two_hops(make_graph):
    edges = make_graph(6, [(0, 1), (1, 2), (2, 3), (3, 4)]).edge_index.numpy()
    changed = np.array([True, False, False, False, False, False])
    assert touched(edges, changed).tolist() == [True, True, True, False, False, False]


def test_a_change_passes_through_generated_neighbours(make_graph):
    """Node 0 and node 4 have the same generated neighbour, 5 and 6 have one that lost a node."""
    edges = make_graph(7, [(1, 2)]).edge_index.numpy()
    names = np.array([10, 11, 12, 13, 14, 15, 16], dtype=np.uint64)
    client = np.array([0, 0, 0, 0, 0, 1, 1])
    changed = np.zeros(7, dtype=bool)
    changed[0] = True

    def reached(*links):
        generated = [
            Generated(None, np.array(source), np.array(target, dtype=np.uint64), 1.0)
            for source, target in links
        ]
        return np.flatnonzero(_reached(edges, changed, names, client, generated)).tolist()

    first = ([0, 0, 1], [10, 14, 13])
    assert reached(first) == [0, 4]
    gone = ([0, 0], [15, 99])
    assert reached(first, gone) == [0, 4, 5]
    moved = ([0, 0], [16, 13])  # 13 is now at client 0
    assert reached(first, moved) == [0, 4, 6]


def test_names_are_located():
    names = np.array([7, 3, 9], dtype=np.uint64)
    assert located(names, np.array([9, 4, 7], dtype=np.uint64)).tolist() == [2, -1, 0]
    nobody = np.array([], dtype=np.uint64)
    assert located(nobody, names).tolist() == [-1, -1, -1]
