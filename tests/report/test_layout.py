import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.report.layout import positions


@st.composite
def cut_graphs(draw):
    clients = draw(st.integers(1, 5))
    n = draw(st.integers(clients, 40))
    client = np.array([draw(st.integers(0, clients - 1)) for _ in range(n)])
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    pairs = draw(st.lists(pair, max_size=60))
    edges = np.array([p for p in pairs if p[0] < p[1]], dtype=np.int64).reshape(-1, 2).T
    return client, edges, clients


@settings(max_examples=25, deadline=None)
@given(cut_graphs())
def test_all_nodes_lie_in_the_square_and_the_same_graph_gives_the_same_drawing(graph):
    place = positions(*graph)
    assert place.shape == (len(graph[0]), 2)
    assert np.isfinite(place).all()
    assert np.abs(place).max() <= 1 + 1e-9
    assert (place == positions(*graph)).all()


def test_islands_lie_apart():
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(4), 50)
    edges = np.sort(rng.integers(0, 200, size=(2, 300)), axis=0)
    place = positions(client, edges[:, edges[0] < edges[1]], 4)
    centres = np.stack([place[client == k].mean(axis=0) for k in range(4)])
    for k in range(4):
        nearest = np.linalg.norm(place[client == k][:, None] - centres, axis=2).argmin(axis=1)
        assert (nearest == k).mean() > 0.95


def test_neighbours_lie_closer_than_strangers():
    chain = np.stack([np.arange(59), np.arange(1, 60)])
    place = positions(np.zeros(60, dtype=np.int64), chain, 1)
    near = np.linalg.norm(place[chain[0]] - place[chain[1]], axis=1).mean()
    everyone = np.linalg.norm(place[:, None] - place, axis=2).mean()
    assert near < everyone / 2


def test_no_nodes_need_no_place():
    nothing = np.zeros(0, dtype=np.int64)
    assert positions(nothing, np.zeros((2, 0), dtype=np.int64), 3).shape == (0, 2)


def test_more_clients_than_forces_are_worth_still_have_a_place():
    place = positions(np.arange(500), np.array([[0], [499]]), 500)
    assert len(np.unique(place.round(9), axis=0)) == 500
