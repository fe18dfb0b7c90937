"""Graphs, from files to clients: load, divide among clients, give every node its role."""

from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.catalogue import DATASETS, GraphStats
from fedcover.graphs.check import check_graph
from fedcover.graphs.convert import from_networkx, from_scipy
from fedcover.graphs.datasets import fetch, load
from fedcover.graphs.inspection import Inspection, inspect
from fedcover.graphs.npz import read_npz
from fedcover.graphs.partition import ClientGraph, Partition, boundary, client_graphs, partition
from fedcover.graphs.readers import read_folder
from fedcover.graphs.scaling import Scaling, fit_scaling, scaled
from fedcover.graphs.schema import Schema, read_schema, schema_of
from fedcover.graphs.splits import Role, resplits, split
from fedcover.graphs.statistics import describe, missing_edges

__all__ = [
    "DATASETS",
    "ClientGraph",
    "GraphStats",
    "Inspection",
    "Partition",
    "Role",
    "Scaling",
    "Schema",
    "boundary",
    "check_graph",
    "client_graphs",
    "describe",
    "feature_matrix",
    "fetch",
    "fit_scaling",
    "from_networkx",
    "from_scipy",
    "inspect",
    "load",
    "missing_edges",
    "partition",
    "read_folder",
    "read_npz",
    "read_schema",
    "resplits",
    "scaled",
    "schema_of",
    "split",
]
