import numpy as np
import pytest
import torch
from scipy import sparse

from fedcover.graphs.assemble import (
    assemble,
    bag_of_words,
    feature_matrix,
    largest_component,
    undirected,
)


def test_undirected_by_hand():
    edges = np.array([[2, 0, 0, 1, 1], [0, 2, 1, 1, 0]])  # 2–0 twice, 0–1 twice, a self-loop
    assert undirected(edges, 3).tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]


def test_undirected_without_edges():
    assert undirected(np.zeros((2, 0), dtype=np.int64), 3).shape == (2, 0)


@pytest.mark.parametrize(("nonzero", "layout"), [(9, torch.sparse_csr), (10, torch.strided)])
def test_features_are_sparse_below_a_tenth(make_graph, nonzero, layout):
    x = np.zeros((10, 10))
    x.flat[np.arange(nonzero) * 7] = 2.5
    for features in (x, sparse.csr_array(x)):
        graph = make_graph(10, x=features)
        assert graph.x.layout == layout
        assert graph.x.dtype == torch.float32
        assert np.array_equal(graph.x.to_dense().numpy(), x)
        back = feature_matrix(graph)
        assert np.array_equal(back.toarray() if sparse.issparse(back) else back, x)


def test_duplicate_sparse_entries_are_added():
    x = sparse.csr_array((np.ones(3), np.array([4, 4, 1]), np.array([0, 3, 3])), shape=(2, 40))
    graph = assemble(
        x, np.zeros((2, 0), int), np.array([0, 1]), name="n", label_names="ab", node_ids=["p", "q"]
    )
    assert graph.x.to_dense()[0, 4] == 2
    assert graph.x.col_indices().tolist() == [1, 4]


def test_largest_component_takes_everything_along(make_graph):
    graph = make_graph(
        6,
        [(0, 5), (1, 4), (4, 3)],
        node_ids=list("abcdef"),
        client=np.array([0, 1, 0, 1, 1, 0]),
        client_names=["north", "south"],
        split=np.array([0, 1, 2, 3, 2, 1]),
    )
    part = largest_component(graph)
    assert part.node_ids == ["b", "d", "e"]
    assert part.edge_index.tolist() == [[0, 1, 2, 2], [2, 2, 0, 1]]
    assert torch.equal(part.x, graph.x[[1, 3, 4]])
    assert part.y.tolist() == [1, 1, 0]
    assert part.client.tolist() == [1, 1, 1]
    assert part.client_names == ["north", "south"]
    assert part.split.tolist() == [1, 3, 2]
    assert part.split.dtype == torch.int8


def test_largest_component_keeps_sparse_features(make_graph):
    graph = make_graph(20, [(0, 19), (1, 1)], x=sparse.eye_array(20, 30, format="csr"))
    part = largest_component(graph)
    assert part.edge_index.tolist() == [[0, 1], [1, 0]]
    assert part.x.layout == torch.sparse_csr
    assert np.argwhere(part.x.to_dense().numpy()).tolist() == [[0, 0], [1, 19]]


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 0, 0], [0, 1, 0]], True),
        ([[0.4, 0, 0], [0, 0, 2.5]], True),
        ([[-1, 0, 0], [0, 1, 0]], False),  # no word occurs minus once
        ([[1, 1, 0], [0, 1, 0]], False),  # half of all words in every text
        ([[0, 0, 0], [0, 0, 0]], True),
        ([[1, 0, 0, 67], [0, 1, 0, 0], [0, 0, 1, 0]], False),  # an age among indicators
    ],
)
def test_features_that_look_like_words(rows, words, dense):
    x = np.array(rows, dtype=np.float32)
    assert bag_of_words(x if dense else sparse.csr_array(x)) is words
