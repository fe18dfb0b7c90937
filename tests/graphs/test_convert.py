"""Graphs of other libraries, against the same ones from tables."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data

import fedcover
from fedcover.errors import DataError, UsageError
from fedcover.graphs import schema_of

NODES = """id,label,client,age,ward
a,x,p,30,north
b,y,p,41.5,south
c,,q,29,north
d,y,q,50,south
"""


def hospital() -> networkx.MultiDiGraph:
    graph = networkx.MultiDiGraph(name="hospital")
    for row in NODES.splitlines()[1:]:
        node, label, client, age, ward = row.split(",")
        known = {"label": label} if label else {}
        graph.add_node(node, **known, client=client, age=float(age), ward=ward)
    graph.add_edges_from([("a", "b"), ("b", "a"), ("a", "b"), ("c", "c"), ("d", "a")])
    return graph


def test_a_networkx_graph_is_read_like_a_folder(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text("source,target\na,b\nd,a\n")
    table = fedcover.load(tmp_path)
    graph = fedcover.from_networkx(hospital(), client="client")
    assert torch.equal(graph.x.to_dense(), table.x.to_dense())
    for key in ("y", "edge_index", "client", "numeric"):
        assert torch.equal(graph[key], table[key])
    for key in ("label_names", "client_names", "node_ids", "feature_names", "columns"):
        assert graph[key] == table[key]
    assert graph.name == "hospital"
    assert graph.y.tolist() == [0, 1, -1, 1]


def test_chosen_features_and_gaps() -> None:
    one = hospital()
    graph = fedcover.from_networkx(one, features=["age"])
    assert graph.feature_names == ["age"]
    assert "client" not in graph
    del one.nodes["d"]["age"]
    with pytest.raises(DataError, match="The networkx graph, node 'd', attribute 'age': is empty"):
        fedcover.from_networkx(one, features=["age"])
    imputed = fedcover.from_networkx(one, features=["age"], missing="impute")
    assert imputed.missing.tolist() == [[3], [0]]


def test_a_later_networkx_graph_is_read_by_its_schema() -> None:
    schema = schema_of(fedcover.from_networkx(hospital(), client="client"))
    later = networkx.Graph()
    later.add_node(7, age=1, ward="south")
    graph = fedcover.from_networkx(later, features=["age", "ward"], schema=schema)
    assert graph.x.to_dense().tolist() == [[1, 0, 1]]
    assert graph.y.tolist() == [-1]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ({"label": "disease"}, "No node of the graph has the attribute 'disease'"),
        ({"client": "nope"}, "No node of the graph has the attribute 'nope', which is its client."),
        ({"features": ["nope"]}, "No node of the graph has the attribute 'nope'."),
        ({"features": "age"}, "features is 'age'; it must be a list of attributes."),
        ({}, "features has 'client', but id, label, client, split are no features"),
    ],
)
def test_attributes_that_do_not_fit(arguments: dict, fragment: str) -> None:
    with pytest.raises((DataError, UsageError), match=fragment):
        fedcover.from_networkx(hospital(), **arguments)


@pytest.mark.parametrize(
    ("value", "fragment"),
    [
        ([1.0, 2.0], "node 'd', attribute 'extra': is a list; it must be a number, true or false,"),
        (np.ones(3), "node 'd', attribute 'extra': is a ndarray; it must be a number, true or"),
        (4.5, "node 'd', attribute 'extra': is the number 4.5, but other nodes have text;"),
    ],
)
def test_an_attribute_that_is_no_single_value_or_of_another_kind(
    value: object, fragment: str
) -> None:
    graph = hospital()
    for node in graph:
        graph.nodes[node]["extra"] = "word"
    graph.nodes["d"]["extra"] = value
    with pytest.raises(DataError, match=fragment):
        fedcover.from_networkx(graph, client="client")


def test_numbers_stay_numbers_whatever_stands_for_none() -> None:
    """Such as pandas' NA, which has no name here."""
    graph = hospital()
    missing = type("NAType", (), {})()
    for node, value in zip(
        "abcd", (Decimal("1.5"), missing, np.int64(3), Fraction(1, 4)), strict=True
    ):
        graph.nodes[node]["extra"] = value
    read = fedcover.from_networkx(graph, client="client", missing="impute")
    assert read.feature_names == ["age", "ward=north", "ward=south", "extra"]
    assert read.x.to_dense()[:, 3].tolist() == [1.5, 0, 3, 0.25]
    assert read.missing.tolist() == [[1], [3]]


def test_labels_that_are_floats_for_the_sake_of_nan_are_integers() -> None:
    graph = hospital()
    for node, value in zip("abcd", (10.0, float("nan"), 9, 10), strict=True):
        graph.nodes[node]["disease"] = value
    read = fedcover.from_networkx(graph, label="disease", features=["age"])
    assert (read.y.tolist(), read.label_names) == ([1, -1, 0, 1], ["9", "10"])
    graph.nodes["a"]["disease"] = 9.5
    with pytest.raises(DataError, match="attribute 'disease': has the type Float64"):
        fedcover.from_networkx(graph, label="disease", features=["age"])


def test_what_is_no_networkx_graph() -> None:
    with pytest.raises(UsageError, match="graph is a dict; it must be a networkx graph"):
        fedcover.from_networkx({})


def matrix() -> sparse.coo_matrix:
    return sparse.coo_matrix(([1.0, 2.0, 1.0], ([0, 1, 2], [1, 0, 2])), shape=(4, 4))


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, lambda m: m.toarray()])
def test_scipy_by_hand(kind: object) -> None:
    x = np.arange(8.0).reshape(4, 2)
    graph = fedcover.from_scipy(
        kind(matrix()),  # type: ignore[operator]
        x,
        ["b", "a", None, "b"],
        client=["p", "q", "p", "q"],
        split=["Training", "calib", "", "test"],
    )
    assert graph.edge_index.tolist() == [[0, 1], [1, 0]]
    assert graph.x.tolist() == x.tolist()
    assert graph.y.tolist() == [1, 0, -1, 1]
    assert graph.label_names == ["a", "b"]
    assert graph.client_names == ["p", "q"]
    assert graph.split.tolist() == [0, 2, -1, 3]
    assert "numeric" not in graph


def test_scipy_with_sparse_features_and_numbered_labels() -> None:
    x = sparse.eye_array(4, 30, format="csc")
    graph = fedcover.from_scipy(matrix(), x, [0, 2, -1, 0], label_names=["a", "b", "c"])
    assert graph.x.layout == torch.sparse_csr
    assert graph.y.tolist() == [0, 2, -1, 0]
    renumbered = fedcover.from_scipy(matrix(), x, [0, 7, -1, 0])
    assert renumbered.y.tolist() == [0, 1, -1, 0]
    assert renumbered.label_names == ["0", "7"]


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"adjacency": np.ones((4, 3))}, "adjacency has the shape (4, 3); it must be square."),
        ({"adjacency": np.full((4, 4), np.nan)}, "adjacency has NaN; 0 is no edge"),
        ({"adjacency": sparse.eye_array(4) * np.nan}, "adjacency has NaN; 0 is no edge"),
        ({"y": [0, 1, -5, 1]}, "y has -5; labels are numbers from 0 on, and -1 is none."),
        ({"y": [1, -1, 1, -1]}, "y has the same label, 1, for every node that has one (-1 is none"),
        ({"node_ids": 5}, "node_ids has 1 entries; the graph has 4 nodes."),
        ({"adjacency": "no"}, "adjacency must be a matrix"),
        ({"x": np.ones((3, 2))}, "x has 3 rows; the graph has 4 nodes."),
        ({"x": np.full((4, 1), np.inf)}, "x has a value that is not a finite"),
        ({"y": [0, 1]}, "y has 2 rows; the graph has 4 nodes."),
        ({"y": [1, 1, 1, -1]}, "y has the same label"),
        ({"y": [0, 5, 1, 0], "label_names": ["a", "b"]}, "y has 5 at position 1"),
        ({"y": list("abca"), "label_names": ["a", "b"]}, "y has 'c', which is not among"),
        ({"y": list("abca"), "label_names": list("abca")}, "label_names has 'a' twice"),
        ({"label_names": ["a", "a"]}, "label_names has 'a' twice"),
        ({"node_ids": list("abca")}, "node_ids has 'a' twice"),
        ({"split": ["train"] * 3}, "split has the shape (3,); it must be (4,)."),
        ({"split": ["dev"] * 4}, "split has 'dev'; it must be one of train, valid, calib, test."),
        ({"split": [0, 258, 2, 3]}, "split has 258 at position 1; it must be one of 0 (train), 1"),
        ({"split": [0, 2, 3, -2]}, "split has -2 at position 3; it must be one of 0 (train), 1 (v"),
        ({"client": ["p", None, "q", "p"]}, "client has no value at position 1; every node needs"),
        ({"client": ["p", "q", "q", np.nan]}, "client has no value at position 3"),
        ({"client": ["p", "q", " ", "p"]}, "client has no value at position 2"),
        ({"node_ids": ["p", None, "q", "r"]}, "node_ids has no value at position 1"),
        ({"client": ["p"]}, "client has 1 entries; the graph has 4 nodes."),
    ],
)
def test_scipy_refusals(change: dict, fragment: str) -> None:
    arguments = {"adjacency": matrix(), "x": np.ones((4, 2)), "y": [0, 1, 0, 1]} | change
    with pytest.raises(DataError) as caught:
        fedcover.from_scipy(**arguments)
    assert fragment in str(caught.value)


def test_measured_values_are_no_classes() -> None:
    values = np.arange(101) / 7
    with pytest.raises(DataError, match="y has 101 different values for 101 nodes, too many for"):
        fedcover.from_scipy(sparse.eye_array(101), values[:, None], values)


def test_a_role_may_be_none_in_every_spelling() -> None:
    split = ["train", np.nan, "calib", "test"]
    for roles in (split, np.array(split, dtype=object), ["train", None, " calib", "test"]):
        graph = fedcover.from_scipy(matrix(), np.ones((4, 2)), [0, -1, 0, 1], split=roles)
        assert graph.split.tolist() == [0, -1, 2, 3]


def test_clients_that_are_floats_are_integers() -> None:
    graph = fedcover.from_scipy(matrix(), np.ones((4, 2)), [0, 1, 0, 1], client=np.array([2.0] * 4))
    assert graph.client_names == ["2"]


def test_a_pyg_graph_may_have_unknown_labels() -> None:
    graph = Data(
        x=torch.ones(4, 2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1, -1, 0])
    )
    assert fedcover.graphs.check_graph(graph).y.tolist() == [0, 1, -1, 0]
    graph.y = torch.full((4,), -1)
    with pytest.raises(DataError, match="y has no label"):
        fedcover.graphs.check_graph(graph)


@pytest.mark.parametrize(
    ("y", "names", "expected", "found"),
    [
        ([1.0, 0.0, np.nan, 1.0], None, [1, 0, -1, 1], ["0", "1"]),
        (np.array([1.0, -1.0, np.nan, 0.0], np.float32), ["a", "b"], [1, -1, -1, 0], ["a", "b"]),
        (["b", "a", np.nan, "b"], None, [1, 0, -1, 1], ["a", "b"]),
        (np.array(["b", np.nan, None, "a"], dtype=object), ["a", "b"], [1, -1, -1, 0], ["a", "b"]),
        (np.array([5, None, np.float32("nan"), 7], dtype=object), None, [0, -1, -1, 1], ["5", "7"]),
        (np.array([3, None, -1, 4], dtype=object), None, [0, -1, -1, 1], ["3", "4"]),
        (["b", "a ", " ", "b "], None, [1, 0, -1, 1], ["a", "b"]),
        ([0.5, 1.0, np.nan, 0.5], None, [0, 1, -1, 0], ["0.5", "1.0"]),
    ],
)
def test_nan_and_blanks_are_no_label(y: object, names: object, expected: list, found: list) -> None:
    graph = fedcover.from_scipy(matrix(), np.ones((4, 2)), y, label_names=names)
    assert graph.y.tolist() == expected
    assert graph.label_names == found


def test_attributes_may_have_keys_that_are_no_text() -> None:
    graph = networkx.path_graph(4)
    for node in graph:
        graph.nodes[node].update({"label": "ab"[node % 2], 7: node, ("x", 1): 2 * node})
    found = fedcover.from_networkx(graph)
    assert found.feature_names == ["7", "('x', 1)"]
    assert found.x.tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]
    assert fedcover.from_networkx(graph, features=[7]).x.tolist() == [[0], [1], [2], [3]]
    graph.nodes[0]["7"] = 1
    with pytest.raises(UsageError, match="features has '7' twice"):
        fedcover.from_networkx(graph)


def test_nan_among_words_of_a_networkx_graph_is_missing() -> None:
    graph = networkx.path_graph(4)
    for node, label in enumerate(["a", float("nan"), "b", "a"]):
        graph.nodes[node].update(label=label, f=node)
    assert fedcover.from_networkx(graph).y.tolist() == [0, -1, 1, 0]
