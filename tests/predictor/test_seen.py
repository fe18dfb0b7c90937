"""Where new nodes belong, and how far a change reaches."""

import numpy as np

from fedcover.predictor.known import located, touched
from fedcover.predictor.seen import _joined, _reached


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
        return np.flatnonzero(_reached(edges, changed, names, client, links)).tolist()

    first = (0, np.array([0, 0, 1]), np.array([10, 14, 13], dtype=np.uint64))
    assert reached(first) == [0, 4]
    gone = (1, np.array([0, 0]), np.array([15, 99], dtype=np.uint64))
    assert reached(first, gone) == [0, 4, 5]
    moved = (1, np.array([0, 0]), np.array([16, 13], dtype=np.uint64))  # 13 is now at client 0
    assert reached(first, moved) == [0, 4, 6]


def test_names_are_located():
    names = np.array([7, 3, 9], dtype=np.uint64)
    assert located(names, np.array([9, 4, 7], dtype=np.uint64)).tolist() == [2, -1, 0]
    nobody = np.array([], dtype=np.uint64)
    assert located(nobody, names).tolist() == [-1, -1, -1]
