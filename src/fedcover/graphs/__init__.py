"""Graphs, from files to clients: load, divide among clients, give every node its role."""

from fedcover.graphs.datasets import load
from fedcover.graphs.partition import Partition, boundary, client_graphs, partition
from fedcover.graphs.splits import Role, resplits, split

__all__ = [
    "Partition",
    "Role",
    "boundary",
    "client_graphs",
    "load",
    "partition",
    "resplits",
    "split",
]
