"""A graph's nodes as a predictor sees them: whose they are, and which are new or have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError
from fedcover.graphs.splits import Role
from fedcover.predictor.known import Known, fingerprints, hashed, touched

_SEED = 0x0DD  # of the u of nodes that are new


@dataclass(frozen=True)
class Seen:
    """One entry a node."""

    names: NDArray[np.uint64]
    client: NDArray[np.int64]
    role: NDArray[np.int8]  # -1: none
    u: NDArray[np.float64]
    new: NDArray[np.bool_]
    changed: NDArray[np.bool_]

    @classmethod
    def of(cls, graph: Data, known: Known, clients: Sequence[str], given: bool) -> Seen:
        """With ``given``, clients are taken from the graph's own column, else as they were."""
        names = hashed(graph.node_ids)
        place = known.places(names)
        new = place < 0
        client = np.where(new, -1, known.client[place])
        moved = np.zeros_like(new)
        if given:
            own = numbered(graph, "client", clients)
            client, moved = own, client != own
        elif new.any():
            client = _joined(graph, client, len(clients))
        role = np.where(new, np.int8(-1), known.role[place])
        drawn = (names ^ np.uint64(_SEED)).astype(np.float64) / 2.0**64
        u = np.where(new, np.minimum(drawn, np.nextafter(1.0, 0.0)), known.u[place])
        differs = new | moved | (fingerprints(graph, names) != known.print[place])
        return cls(names, client, role, u, new, touched(graph, differs))

    def kinds(self) -> NDArray[np.object_]:
        """What each node is, as in ``PROMISES``."""
        words = np.array([role.name.lower() for role in Role] + ["unlabelled"], dtype=object)
        kinds = words[self.role]
        kinds[self.changed & np.isin(self.role, (-1, Role.TEST))] = "changed"
        kinds[self.new] = "new"
        return np.asarray(kinds)


def numbered(graph: Data, column: str, names: Sequence[str]) -> NDArray[np.int64]:
    """The clients or groups of a graph's nodes, numbered as the predictor has them."""
    if column not in graph:
        raise DataError(f"{graph.name} has no {column}s, which the predictor needs.")
    number = {name: k for k, name in enumerate(names)}
    own = graph[f"{column}_names"]
    for name in own:
        if name not in number:
            raise DataError(
                f"{graph.name} has the {column} {name!r}; the predictor knows {', '.join(names)}."
            )
    numbers = np.array([number[name] for name in own], dtype=np.int64)
    return np.asarray(numbers[graph[column].numpy()])


def _joined(graph: Data, client: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    """New nodes go to the client that most of their neighbours are at; without any, to the first
    with the fewest nodes."""
    client = client.copy()
    source, target = graph.edge_index.numpy()
    smallest = int(np.bincount(client[client >= 0], minlength=clients).argmin())
    while (client < 0).any():
        ask = (client[target] < 0) & (client[source] >= 0)
        votes = np.zeros((len(client), clients), dtype=np.int64)
        np.add.at(votes, (target[ask], client[source[ask]]), 1)
        won = (client < 0) & votes.any(axis=1)
        if not won.any():
            client[client < 0] = smallest
            break
        client[won] = votes[won].argmax(axis=1)
    return client
