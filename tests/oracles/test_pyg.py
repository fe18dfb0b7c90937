"""Forward passes of the stacked program against PyG's own convolutions, on the real Cora."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv, SAGEConv

import fedcover
from fedcover.graphs.assemble import feature_matrix
from fedcover.models import initial_weights
from fedcover.training.averaging import Averaging
from fedcover.training.plan import Federation, PartyGraph, Plan
from fedcover.training.receptive_field import Field
from fedcover.training.stack import Stack


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_forward_pass_equals_pyg(model, dense):
    graph = fedcover.load("cora")
    x = feature_matrix(graph)
    dense_x = x.toarray()
    nodes = np.arange(len(graph.y))
    client = PartyGraph(
        dense_x if dense else x, graph.edge_index.numpy(), graph.y.numpy(), nodes[:10], nodes[10:15]
    )
    plan = Plan(model, classes=7, hidden=16)
    stack = Stack([Federation([client], seed=0)], plan)
    drawn = initial_weights(model, 1433, 16, 7, np.random.default_rng(0))
    weights = drawn._replace(first_bias=drawn.first_bias + 0.1, second_bias=drawn.second_bias - 0.2)
    averaging = Averaging(stack, bits=20)
    ours = Field(stack, nodes).logits(averaging.broadcast(averaging.shared([weights])))

    if model == "gcn":
        layers = [GCNConv(1433, 16), GCNConv(16, 7)]
    else:
        layers = [SAGEConv(1433, 16, aggr="mean"), SAGEConv(16, 7, aggr="mean")]
    with torch.no_grad():
        for layer, matrix, bias in (
            (layers[0], weights.first, weights.first_bias),
            (layers[1], weights.second, weights.second_bias),
        ):
            if model == "gcn":
                layer.lin.weight.copy_(matrix.T)
                layer.bias.copy_(bias)
            else:
                neighbours, root = matrix.chunk(2)
                layer.lin_l.weight.copy_(neighbours.T)
                layer.lin_r.weight.copy_(root.T)
                layer.lin_l.bias.copy_(bias)
        hidden = layers[0](torch.from_numpy(dense_x), graph.edge_index).relu()
        theirs = layers[1](hidden, graph.edge_index)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
