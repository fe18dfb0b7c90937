"""A party's data in one repetition: its graph, the roles of its nodes, and numbers of its own.

Randomness belongs to a party: roles and u are drawn from (seed, party number) alone, so that a
simulation and a party by itself draw the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.config import Config
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.labels import NO_LABEL
from fedcover.graphs.partition import ClientGraph, Partition, client_graphs
from fedcover.graphs.splits import NO_ROLE, Role, split
from fedcover.training.plan import Features


@dataclass(frozen=True)
class PartyData:
    """One party's graph with the roles of its nodes; ``number`` is its own in the federation."""

    name: str
    number: int
    seed: int
    x: Features
    edge_index: NDArray[np.int64]
    y: NDArray[np.int64]
    roles: NDArray[np.int8]
    u: NDArray[np.float64]  # of APS and RAPS, one a node
    numeric: NDArray[np.bool_]  # which features are numbers other than 0 and 1
    missing: NDArray[np.int64] | None = None  # (2, m): cells of ``x`` that hold no value
    group: NDArray[np.int64] | None = None  # of every node, as an index into the names
    group_names: tuple[str, ...] = ()
    secret: int = 0  # private noise is drawn from it, too; a simulation, which repeats, has none
    # What a simulation alone knows: the far ends of cut edges, and (2, m) their links to own nodes.
    far: PartyData | None = None
    far_links: NDArray[np.int64] | None = None

    @property
    def key(self) -> tuple[int, int]:
        """What its random numbers depend on."""
        return self.seed, self.number

    def nodes(self, role: Role) -> NDArray[np.int64]:
        """The nodes of this role."""
        return np.flatnonzero(self.roles == role)

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes there are, and of which role: all that the coordinator learns of them."""
        roles = {role.name.lower(): len(self.nodes(role)) for role in Role}
        return {"nodes": len(self.roles)} | roles


def party_data(graph: Data, config: Config, seed: int, number: int, name: str) -> PartyData:
    """The party that holds this graph, as a site does."""
    n = int(graph.num_nodes)
    roles = split(
        np.zeros(n, dtype=np.int64),
        np.random.default_rng([seed, number, 0x5917]),
        train=config.train,
        valid=config.valid,
        given=graph.split.numpy() if "split" in graph else None,
        names=[name],
        labelled=graph.y.numpy() != NO_LABEL,
    )
    u = np.random.default_rng([seed, number, 0xC0F]).random(n)
    return _with_roles(graph, name, number, seed, roles, u)


def cut_parties(
    graph: Data, partition: Partition, config: Config, seed: int, *, restored: bool = False
) -> list[PartyData]:
    """The parties of a simulation: every one with its own nodes and the edges between them.

    ``restored`` gives them the far ends of the edges that the cut took, too.
    """
    parties = []
    cut, numeric = partition.cut_edges, numeric_features(graph)
    for number, part in enumerate(client_graphs(graph, partition)):
        own = _cut(graph, part)
        own.numeric = torch.from_numpy(numeric)
        data = party_data(own, config, seed, number, partition.names[number])
        if restored:
            lost = cut[:, partition.client[cut[1]] == number]
            far, place = np.unique(lost[0], return_inverse=True)
            far_graph = _cut(graph, ClientGraph(far, lost[:, :0]))
            far_graph.numeric = own.numeric
            none = np.full(len(far), NO_ROLE, dtype=np.int8)
            links = np.stack([place, np.searchsorted(part.nodes, lost[1])])
            far_data = _with_roles(far_graph, "", number, seed, none, np.zeros(len(far)))
            data = replace(data, far=far_data, far_links=links)
        parties.append(data)
    return parties


def whole_party(graph: Data, partition: Partition, parties: Sequence[PartyData]) -> PartyData:
    """One owner of everything, with the roles and the numbers that the parties have drawn."""
    roles = gathered(partition, [party.roles for party in parties])
    u = gathered(partition, [party.u for party in parties])
    return _with_roles(graph, "0", 0, parties[0].seed, roles, u)


def gathered(partition: Partition, by_party: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """What the parties hold, in the order of the whole graph's nodes."""
    order = np.argsort(partition.client, kind="stable")
    joined = np.concatenate(by_party)
    whole = np.empty_like(joined)
    whole[order] = joined
    return whole


def numeric_features(graph: Data) -> NDArray[np.bool_]:
    """Which features are numbers other than 0 and 1: as the table says, else by looking."""
    if "numeric" in graph:
        return np.asarray(graph.numeric.numpy(), dtype=bool)
    x = feature_matrix(graph)
    if isinstance(x, np.ndarray):
        return np.asarray(((x != 0) & (x != 1)).any(axis=0))
    marks = np.zeros(x.shape[1], dtype=bool)
    marks[x.indices[(x.data != 0) & (x.data != 1)]] = True
    return marks


def _with_roles(
    graph: Data,
    name: str,
    number: int,
    seed: int,
    roles: NDArray[np.int8],
    u: NDArray[np.float64],
) -> PartyData:
    return PartyData(
        name=name,
        number=number,
        seed=seed,
        x=graph.features if "features" in graph else feature_matrix(graph),
        edge_index=graph.edge_index.numpy(),
        y=graph.y.numpy(),
        roles=roles,
        u=u,
        numeric=numeric_features(graph),
        missing=graph.missing.numpy() if "missing" in graph else None,
        group=graph.group.numpy() if "group" in graph else None,
        group_names=tuple(graph.group_names) if "group" in graph else (),
    )


def _cut(graph: Data, part: ClientGraph) -> Data:
    """The part's nodes with what belongs to them; features stay sparse if the graph's are."""
    nodes = torch.from_numpy(part.nodes)
    own = Data(y=graph.y[nodes], edge_index=torch.from_numpy(part.edge_index))
    own.features = feature_matrix(graph)[part.nodes]
    own.num_nodes = len(part.nodes)
    for column in ("split", "group"):
        if column in graph:
            own[column] = graph[column][nodes]
    if "group" in graph:
        own.group_names = graph.group_names
    if "missing" in graph:
        place = np.full(int(graph.num_nodes), -1)
        place[part.nodes] = np.arange(len(part.nodes))
        row, column = graph.missing.numpy()
        mine = place[row] >= 0
        own.missing = torch.from_numpy(np.stack([place[row[mine]], column[mine]]))
    return own
