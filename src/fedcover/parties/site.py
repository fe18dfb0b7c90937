"""A party's own data: its folder, read and split, with the numbers that belong to it alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.experiment.config import Config
from fedcover.federation import PartyGraph
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.labels import NO_LABEL
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema
from fedcover.graphs.splits import Role, split


@dataclass(frozen=True)
class Site:
    """One party's graph with the roles of its nodes; ``number`` is its own in the job."""

    graph: Data
    roles: NDArray[np.int8]
    u: NDArray[np.float64]  # of APS and RAPS, one a node
    number: int

    @property
    def y(self) -> NDArray[np.int64]:
        """The labels, numbered as the schema has them."""
        labels: NDArray[np.int64] = self.graph.y.numpy()
        return labels

    @property
    def client(self) -> PartyGraph:
        """As training sees it."""
        return PartyGraph(
            feature_matrix(self.graph),
            self.graph.edge_index.numpy(),
            self.y,
            self.nodes(Role.TRAIN),
            self.nodes(Role.VALID),
        )

    def nodes(self, role: Role) -> NDArray[np.int64]:
        """The nodes of this role."""
        return np.flatnonzero(self.roles == role)

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes there are, and of which role: all that the coordinator learns of them."""
        return {"nodes": len(self.roles)} | {
            role.name.lower(): len(self.nodes(role)) for role in Role
        }


def read_site(folder: Path, schema: Schema, config: Config, seed: int, number: int) -> Site:
    """Read a party's folder; without a split column, roles are drawn from the seed and number."""
    graph = read_folder(folder, schema)
    roles = split(
        np.zeros(int(graph.num_nodes), dtype=np.int64),
        np.random.default_rng([seed, number, 0x5917]),
        train=config.train,
        valid=config.valid,
        given=graph.split.numpy() if "split" in graph else None,
        names=[folder.name],
        labelled=graph.y.numpy() != NO_LABEL,
    )
    u = np.random.default_rng([seed, number, 0xC0F]).random(len(roles))
    return Site(graph, roles, u, number)
