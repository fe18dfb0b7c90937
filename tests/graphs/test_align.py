"""A graph in memory whose columns are not where a predictor has them."""

import networkx as nx
import numpy as np
import pytest
import torch

import fedcover
from fedcover.errors import DataError
from fedcover.graphs.assemble import aligned
from fedcover.graphs.schema import schema_of


def graph(*, words=("north", "south", "north"), order=("age", "ward"), **more):
    made = nx.Graph([("u", "v"), ("v", "w")])
    for node, label, age, ward in zip("uvw", "xyx", (1.5, 2.0, 3.0), words, strict=True):
        values = {"age": age, "ward": ward} | more
        made.nodes[node].update({"label": label, **{name: values[name] for name in order}})
    return fedcover.from_networkx(made)


def test_columns_are_taken_where_they_stand():
    here, there = graph(), graph(order=("ward", "age"))
    assert there.feature_names == ["ward=north", "ward=south", "age"]
    moved = aligned(there, schema_of(here))
    assert moved.feature_names == here.feature_names
    assert schema_of(moved) == schema_of(here)
    assert torch.equal(moved.x.to_dense(), here.x.to_dense())
    assert aligned(here, schema_of(here)) is here


def test_a_category_that_no_node_has_is_zeros():
    moved = aligned(graph(words=("south",) * 2 + ("south",)), schema_of(graph()))
    assert moved.x.to_dense()[:, 1:].tolist() == [[0, 1], [0, 1], [0, 1]]


def test_gaps_move_with_their_columns():
    there = graph(order=("ward", "age"))
    there.missing = torch.tensor([[1], [2]])  # the age of v
    assert aligned(there, schema_of(graph())).missing.tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"words": ("north", "east", "north")}, "column 'ward' has 'east', which is not an agreed"),
        ({"order": ("age",)}, "column 'ward' is missing, the agreed feature 2"),
        ({"order": ("age", "ward", "kg"), "kg": 3.0}, "column 'kg' is one feature more than"),
    ],
)
def test_other_columns_are_refused(other, what):
    with pytest.raises(DataError, match=f"is not what the predictor was trained with: {what}"):
        aligned(graph(**other), schema_of(graph()))


def test_a_graph_that_was_not_made_of_columns_is_left_alone(two_triangles):
    assert aligned(two_triangles, schema_of(graph())) is two_triangles
    assert np.all(two_triangles.x.numpy() > 0)
