"""One seed's features: standardised, and missing values filled, by its training nodes alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.graphs.assemble import feature_matrix, with_features
from fedcover.graphs.partition import Partition
from fedcover.graphs.scaling import Scaling, fit_scaling, scaled, summed_columns
from fedcover.graphs.splits import Role


def on_one_scale(
    graph: Data, partition: Partition, roles: NDArray[np.int8], standardise: bool
) -> tuple[Data, Scaling | None, int]:
    """The graph as this seed's models see it, its scaling, and how many columns were summed for it.

    Every client sums over its own training nodes; nothing else of its features leaves it.
    """
    missing = graph.missing.numpy() if "missing" in graph else None
    features = int(graph.x.shape[1])
    columns = numeric(graph) if standardise else np.zeros(features, dtype=bool)
    if missing is None and not columns.any():
        return graph, None, 0
    x = feature_matrix(graph)
    train = np.flatnonzero(roles == Role.TRAIN)
    owner = partition.client[train]
    nodes = [train[owner == client] for client in range(partition.clients)]
    scaling = fit_scaling(x, nodes, columns, missing)
    summed = len(summed_columns(columns, missing))
    return with_features(graph, scaled(x, scaling, missing)), scaling, summed


def numeric(graph: Data) -> NDArray[np.bool_]:
    """Which features are numbers other than 0 and 1: as the table says, else by looking."""
    if "numeric" in graph:
        return np.asarray(graph.numeric.numpy(), dtype=bool)
    x = feature_matrix(graph)
    if isinstance(x, np.ndarray):
        return np.asarray(((x != 0) & (x != 1)).any(axis=0))
    marks = np.zeros(x.shape[1], dtype=bool)
    marks[x.indices[(x.data != 0) & (x.data != 1)]] = True
    return marks
