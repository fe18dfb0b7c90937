"""Graphs, from files to clients: load, divide among clients, give every node its role."""

from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.catalogue import DATASETS, GraphStats
from fedcover.graphs.check import check_graph
from fedcover.graphs.datasets import fetch, load
from fedcover.graphs.inspection import Inspection, inspect
from fedcover.graphs.npz import read_npz
from fedcover.graphs.partition import ClientGraph, Partition, boundary, client_graphs, partition
from fedcover.graphs.readers import read_folder
from fedcover.graphs.splits import Role, resplits, split
from fedcover.graphs.statistics import describe, missing_edges

__all__ = [
    "DATASETS",
    "ClientGraph",
    "GraphStats",
    "Inspection",
    "Partition",
    "Role",
    "boundary",
    "check_graph",
    "client_graphs",
    "describe",
    "feature_matrix",
    "fetch",
    "inspect",
    "load",
    "missing_edges",
    "partition",
    "read_folder",
    "read_npz",
    "resplits",
    "split",
]
