"""The features of a graph in memory in the order of a schema, as tables are read by it."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError
from fedcover.graphs.assemble import feature_matrix, with_features
from fedcover.graphs.schema import Schema, schema_of


def aligned(graph: Data, schema: Schema) -> Data:
    """The graph with the schema's features, wherever its own columns stand; a category that no
    node has is a feature of zeros. One that was not made of columns is left as it is."""
    if "columns" not in graph or tuple(graph.columns) == schema.features:
        return graph
    own = schema_of(graph)
    if difference := schema.difference(Schema(own.features, ())):
        raise DataError(f"{graph.name} is not what the predictor was trained with: {difference}.")
    place = {name: k for k, name in enumerate(schema.feature_names)}
    columns = np.array([place[name] for name in own.feature_names])
    x = sparse.csr_array(feature_matrix(graph)).tocoo()
    shape = (x.shape[0], len(place))
    other = with_features(graph, sparse.csr_array((x.data, (x.row, columns[x.col])), shape=shape))
    other.columns, other.feature_names = list(schema.features), list(place)
    if "missing" in graph:
        rows, gaps = graph.missing
        other.missing = graph.missing.new_tensor(np.stack([rows.numpy(), columns[gaps.numpy()]]))
    return other
