import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError
from fedcover.graphs import check_graph, load
from fedcover.graphs.assemble import undirected

NAN, INF = float("nan"), float("inf")


def plain(**columns):
    """Four nodes as PyG users make them: no names, one direction of each edge."""
    own = {
        "x": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]),
        "edge_index": torch.tensor([[3, 0, 2, 2], [1, 1, 2, 0]]),
        "y": torch.tensor([0, 2, 0, 1]),
    }
    return Data(**{key: value for key, value in (own | columns).items() if value is not None})


def test_a_plain_graph_gets_names_and_both_directions_without_loops():
    given_graph = plain()
    graph = check_graph(given_graph)
    assert graph.name == "graph"
    assert graph.label_names == ["0", "1", "2"]
    assert list(graph.node_ids) == [0, 1, 2, 3]
    assert graph.edge_index.tolist() == [[0, 0, 1, 1, 2, 3], [1, 2, 0, 3, 0, 1]]
    assert torch.equal(graph.x, given_graph.x)
    assert torch.equal(graph.y, given_graph.y)
    assert given_graph.edge_index.shape == (2, 4)  # the caller's graph is left as it was
    assert "client" not in graph
    assert "split" not in graph
    assert check_graph(graph) is graph


def test_what_load_returns_comes_back_as_it_is():
    graph = load("cora")
    assert check_graph(graph) is graph


def test_names_and_columns_of_an_unsorted_graph_are_kept():
    graph = check_graph(
        plain(
            name="own",
            label_names=["a", "b", "c", "unseen"],
            node_ids=["p", "q", "r", "s"],
            client=torch.tensor([0, 1, 1, 0], dtype=torch.int32),
            split=torch.tensor([0, 1, 2, 3]),
        )
    )
    assert (graph.name, graph.label_names) == ("own", ["a", "b", "c", "unseen"])
    assert graph.node_ids == ["p", "q", "r", "s"]
    assert (graph.client.tolist(), graph.client_names) == ([0, 1, 1, 0], ["0", "1"])
    assert graph.client.dtype == torch.int64
    assert graph.split.tolist() == [0, 1, 2, 3]


def test_a_client_column_without_names_is_numbered_also_in_a_sorted_graph():
    graph = check_graph(plain())
    graph.client = torch.tensor([0, 0, 1, 1])
    assert check_graph(graph).client_names == ["0", "1"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floats_become_float32(dtype):
    graph = check_graph(plain(x=plain().x.to(dtype)))
    assert graph.x.dtype == torch.float32
    assert torch.equal(graph.x, plain().x)


def test_features_that_are_trained_or_sparse_are_taken():
    x = torch.zeros(4, 30)
    x[1, 7] = 2.0
    for features in (x.clone().requires_grad_(), x.to_sparse(), x.to_sparse_csr()):
        graph = check_graph(plain(x=features))
        assert graph.x.layout == torch.sparse_csr
        assert not graph.x.requires_grad
        assert torch.equal(graph.x.to_dense(), x)


@given(
    st.integers(2, 7).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))
        )
    )
)
def test_any_edges_end_as_the_undirected_ones(drawn):
    n, pairs = drawn
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    columns = {"x": torch.eye(n), "y": torch.arange(n) % 2}
    names = {"name": "g", "label_names": ["a", "b"], "node_ids": list(range(n))}
    graph = check_graph(Data(edge_index=torch.tensor(edges), **columns, **names))
    assert np.array_equal(graph.edge_index.numpy(), undirected(edges, n))
    assert check_graph(graph) is graph


def csr(values):
    return torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], values]).to_sparse_csr()


LONG = [0, 1, 0, 1]
REFUSED = {
    "no x": ({"x": None}, "The graph has no x; it needs x, edge_index and y."),
    "no y": ({"y": None}, "The graph has no y; it needs x, edge_index and y."),
    "no edges": ({"edge_index": None}, "The graph has no edge_index; it needs x, edge_index"),
    "x numpy": ({"x": np.ones((4, 2))}, "x is a ndarray; it must be a torch tensor."),
    "x flat": ({"x": torch.ones(4)}, "x has the shape (4,); it must be (nodes, features)."),
    "x without nodes": ({"x": torch.ones(0, 2)}, "x has the shape (0, 2); it must be"),
    "x without features": ({"x": torch.ones(4, 0)}, "x has the shape (4, 0); it must be"),
    "x ints": ({"x": torch.ones(4, 2).long()}, "x has the type torch.int64; it must hold floats."),
    "x nan": (
        {"x": torch.tensor([[1.0, 2.0], [3.0, NAN], [0.0, 0.0], [INF, 0.0]])},
        "x has a value in row 1, column 1 that is not finite.",
    ),
    "x beyond float32": (
        {"x": torch.tensor([[1.0, 1.0]] * 3 + [[1e300, 1.0]], dtype=torch.float64)},
        "x has a value in row 3, column 0 that is not finite.",
    ),
    "x sparse inf": ({"x": csr([0.0, INF])}, "x has a value in row 3, column 1 that is not finite"),
    "y column": ({"y": torch.tensor([LONG]).T}, "y has the shape (4, 1); it must be (4,)."),
    "y short": ({"y": torch.tensor([0, 1])}, "y has the shape (2,); it must be (4,)."),
    "y floats": ({"y": torch.ones(4)}, "y has the type torch.float32; it must hold integers."),
    "y bool": ({"y": torch.tensor(LONG).bool()}, "y has the type torch.bool; it must hold"),
    "y negative": (
        {"y": torch.tensor([0, 1, -2, 0])},
        "y has -2 at position 2; its numbers go from 0 to at most 3, since the graph has 4 nodes.",
    ),
    "y huge": ({"y": torch.tensor([0, 10**12, 1, 0])}, "y has 1000000000000 at position 1;"),
    "y beyond names": (
        {"label_names": ["a", "b"]},
        "y has 2 at position 1; its numbers go from 0 to at most 1, since label_names has 2 names.",
    ),
    "names by number": (
        {"label_names": {0: "a", 1: "b", 2: "c"}},
        "label_names is a dict; it must be a list, in the numbers' order.",
    ),
    "one label": (
        {"y": torch.tensor([1, 1, 1, 1])},
        "y has the same label, 1, for every node; there must be at least 2.",
    ),
    "edges turned": (
        {"edge_index": torch.zeros(5, 2).long()},
        "edge_index has the shape (5, 2); it must be (2, edges).",
    ),
    "edges floats": ({"edge_index": torch.zeros(2, 3)}, "edge_index has the type torch.float32;"),
    "edge to nobody": (
        {"edge_index": torch.tensor([[0, 1, 2, 3], [1, 0, 3, 70]])},
        "edge_index has node 70 at position 3; the graph has 4 nodes.",
    ),
    "edge from below": (
        {"edge_index": torch.tensor([[0, -1], [1, 0]])},
        "edge_index has node -1 at position 1; the graph has 4 nodes.",
    ),
    "ids short": ({"node_ids": ["p"]}, "node_ids has 1 entries; the graph has 4 nodes."),
    "client short": ({"client": torch.tensor([0])}, "client has the shape (1,); it must be (4,)."),
    "client beyond names": (
        {"client": torch.tensor(LONG), "client_names": ["a"]},
        "client has 1 at position 1; its numbers go from 0 to at most 0, since client_names has 1",
    ),
    "split list": ({"split": [0, 1, 2, 3]}, "split is a list; it must be a torch tensor."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_a_sentence_with_the_place(case):
    columns, sentence = REFUSED[case]
    with pytest.raises(DataError) as caught:
        check_graph(plain(**columns))
    message = str(caught.value)
    assert message.startswith(sentence)
    assert message.endswith(".")
    assert "\n" not in message


def test_ids_in_a_tensor_are_numbers():
    for columns in ({}, {"name": "g", "label_names": ["a", "b", "c"]}):
        graph = check_graph(plain(node_ids=torch.tensor([4, 5, 6, 7]), **columns))
        assert isinstance(graph.node_ids, np.ndarray)
        assert graph.node_ids.tolist() == [4, 5, 6, 7]


def test_a_name_is_not_a_graph():
    with pytest.raises(UsageError, match=r"graph is a str; it must be a PyG Data, as fedcover\."):
        check_graph("cora")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"label_names": ["a", "b", "a"]}, "label_names has 'a' twice;"),
        ({"node_ids": ["p", "q", "r", "q"]}, "node_ids has 'q' twice;"),
        ({"node_ids": np.array([4, 5, 6, 4])}, "node_ids has '4' twice;"),
        ({"node_ids": torch.tensor([4, 5, 6, 6])}, "node_ids has '6' twice;"),
        ({"node_ids": [1, 2, 3, "1"]}, "node_ids has '1' twice;"),
        ({"client": torch.tensor([0, 1, 1, 0]), "client_names": ["k", "k"]}, "client_names has"),
        ({"group": torch.tensor([0, 1, 1, 0]), "group_names": ["k", "k"]}, "group_names has 'k'"),
    ],
)
def test_a_name_stands_for_one_thing(columns, sentence):
    with pytest.raises(DataError) as caught:
        check_graph(plain(**columns))
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("wrong", [4, 258, -2])
def test_a_split_is_not_cut_to_a_role(wrong):
    with pytest.raises(DataError, match=f"split has {wrong} at position 2; it must be one of 0"):
        check_graph(plain(split=torch.tensor([0, 2, wrong, 3])))
