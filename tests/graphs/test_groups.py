"""The column that groups nodes: from files, through every step, to the graph."""

import numpy as np
import polars as pl
import pytest
import torch
from torch_geometric.data import Data

from fedcover import DataError, UsageError, load
from fedcover.graphs.check import check_graph
from fedcover.graphs.readers import read_folder

NODES = "id,label,ward,age\na,x,south,1\nb,y,north,2\nc,x,south,3\nd,y,west,4\n"
EDGES = "source,target\na,b\nb,c\n"


@pytest.fixture
def folder(tmp_path):
    def write(nodes=NODES, name="own", edges=EDGES):
        path = tmp_path / name
        path.mkdir(parents=True)
        (path / "nodes.csv").write_text(nodes)
        (path / "edges.csv").write_text(edges)
        return path

    return write


def test_the_column_is_the_group_and_no_feature(folder):
    graph = read_folder(folder(), group="ward")
    assert graph.group_names == ["north", "south", "west"]
    assert graph.group.tolist() == [1, 0, 1, 2]
    assert graph.x.tolist() == [[1.0], [2.0], [3.0], [4.0]]
    assert check_graph(graph) is graph


def test_a_column_of_numbers_is_no_group(folder):
    rows = "".join(f"n{k},{'xy'[k % 2]},{k}.5,{k % 3}\n" for k in range(150))
    path = folder(f"id,label,balance,age\n{rows}", edges="source,target\n")
    with pytest.raises(DataError, match="column 'balance': has 150 different values for 150 nodes"):
        read_folder(path, group="balance")
    graph = read_folder(path, group="age")
    assert (len(graph.group_names), graph.group_column) == (3, "age")


def test_without_the_option_nothing_is_a_group(folder):
    graph = read_folder(
        folder(NODES.replace("south", "0").replace("north", "1").replace("west", "2"))
    )
    assert "group" not in graph
    assert graph.x.shape == (4, 2)


def test_numbers_and_parquet_will_do(folder):
    path = folder()
    (path / "nodes.csv").unlink()
    table = {
        "id": [1, 2, 3, 4],
        "label": ["x", "y", "x", "y"],
        "age": [1.0] * 4,
        "ward": [10, 9, 9, 10],
    }
    pl.DataFrame(table).write_parquet(path / "nodes.parquet")
    (path / "edges.csv").write_text("source,target\n1,2\n")
    graph = read_folder(path, group="ward")
    assert graph.group_names == ["9", "10"]
    assert graph.group.tolist() == [1, 0, 0, 1]


def test_the_client_column_may_group_too(folder):
    graph = load(folder(NODES.replace("ward", "client")), group="client")
    assert graph.group_names == graph.client_names
    assert graph.group.tolist() == graph.client.tolist()


def test_the_largest_component_keeps_its_groups(folder):
    graph = load(folder(), largest_component=True, group="ward")
    assert graph.group_names == ["north", "south", "west"]
    assert graph.group.tolist() == [1, 0, 1]


def test_parties_agree_on_one_numbering(folder, tmp_path):
    folder(name="all/one")
    folder(NODES.replace("west", "east").replace("south", "west"), name="all/two")
    graph = load(tmp_path / "all", group="ward")
    assert graph.group_names == ["east", "north", "south", "west"]
    assert graph.group.tolist() == [2, 1, 2, 3, 3, 1, 3, 0]
    assert graph.x.shape == (8, 1)


@pytest.mark.parametrize("column", ["id", "label", "split"])
def test_columns_with_another_meaning_are_refused(folder, column):
    with pytest.raises(UsageError, match=f"group is '{column}', which says something else"):
        load(folder(), group=column)


def test_a_column_that_is_missing_or_empty_is_refused(folder):
    path = folder(NODES.replace("b,y,north", "b,y,"))
    with pytest.raises(DataError, match=r"nodes\.csv has no column 'unit'; it has id, label, ward"):
        load(path, group="unit")
    with pytest.raises(DataError, match=r"nodes\.csv, line 3, column 'ward': is empty\."):
        load(path, group="ward")


def test_a_graph_without_columns_is_refused(tmp_path):
    with pytest.raises(UsageError, match="group is 'ward', but cora has no columns"):
        load("cora", group="ward")
    np.savez(tmp_path / "g.npz", a=1)
    with pytest.raises(UsageError, match=r"group is 'ward', but .*g\.npz has no columns"):
        load(tmp_path / "g.npz", group="ward")


def test_a_graph_made_in_python_may_bring_groups():
    graph = Data(
        x=torch.rand(3, 2),
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        y=torch.tensor([0, 1, 0]),
        group=torch.tensor([2, 0, 2]),
    )
    checked = check_graph(graph)
    assert checked.group.tolist() == [2, 0, 2]
    assert checked.group_names == ["0", "1", "2"]
    graph.group = torch.tensor([0.5, 0.0, 1.0])
    with pytest.raises(DataError, match=r"group has the type torch\.float32; it must hold"):
        check_graph(graph)
    graph.group, graph.group_names = torch.tensor([0, 1, 2]), ["a", "b"]
    with pytest.raises(DataError, match="group has 2 at position 2"):
        check_graph(graph)
