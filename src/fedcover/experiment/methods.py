"""The methods: which client graphs a federation trains on, and whether it averages.

A method turns one repetition's cut graph into a :class:`~fedcover.federation.Federation`; the
training loop, the engine and everything after it are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.federation import Client, Federation, Trained
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.partition import ClientGraph, Partition, client_graphs
from fedcover.graphs.splits import Role


@dataclass(frozen=True)
class Repetition:
    """One seed's experiment: the graph, how it is cut, and what each node is for."""

    graph: Data
    partition: Partition
    roles: NDArray[np.int8]
    seed: int


@dataclass(frozen=True)
class Method:
    """``parts`` gives the graphs that are trained on, ``average`` whether their models are."""

    parts: Callable[[Repetition], list[ClientGraph]]
    average: bool
    federated: bool  # whether messages of this method would really cross a network

    def federation(self, repetition: Repetition) -> Federation:
        """The clients as the engine wants them."""
        x = feature_matrix(repetition.graph)
        y, roles = repetition.graph.y.numpy(), repetition.roles
        clients = [
            Client(
                x[part.nodes],
                part.edge_index,
                y[part.nodes],
                np.flatnonzero(roles[part.nodes] == Role.TRAIN),
                np.flatnonzero(roles[part.nodes] == Role.VALID),
            )
            for part in self.parts(repetition)
        ]
        return Federation(clients, repetition.seed)

    def logits(self, repetition: Repetition, trained: Trained) -> NDArray[np.float32]:
        """The trained logits in the graph's own node order."""
        logits = np.empty((len(repetition.roles), trained.logits[0].shape[1]), dtype=np.float32)
        for part, rows in zip(self.parts(repetition), trained.logits, strict=True):
            logits[part.nodes] = rows
        return logits


def _cut(repetition: Repetition) -> list[ClientGraph]:
    return client_graphs(repetition.graph, repetition.partition)


def _whole(repetition: Repetition) -> list[ClientGraph]:
    graph = repetition.graph
    return [ClientGraph(np.arange(int(graph.num_nodes)), graph.edge_index.numpy())]


METHODS: dict[str, Method] = {
    "loc": Method(_cut, average=False, federated=True),
    "fed": Method(_cut, average=True, federated=True),
    "central": Method(_whole, average=True, federated=False),
}
"""``loc``: every client alone; ``fed``: FedAvg; ``central``: one owner of all edges, the bound."""
