"""Graph-aware scores of a repetition: clients on their own graphs, weights by validation nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.experiment.methods import Repetition
from fedcover.federation import Engine
from fedcover.federation.ledger import Ledger
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.partition import ClientGraph, client_graphs
from fedcover.graphs.similar import Alike, similar_at
from fedcover.graphs.splits import Role


class Neighbourhoods:
    """Mixes a node's scores with those of its neighbours and of similar nodes at its client."""

    def __init__(self, repetition: Repetition, engine: Engine) -> None:
        self._repetition, self._engine = repetition, engine
        self._alike: dict[int, list[Alike]] = {}  # by the number of parts: the cut graph, the whole

    def scores(
        self,
        name: str,
        base: NDArray[np.float32],
        ledger: Ledger,
        parts: Sequence[ClientGraph] | None = None,
    ) -> tuple[NDArray[np.float32], conformal.Diffusion]:
        """The graph score ``name`` of all nodes from their base scores, and its chosen weights."""
        entry = conformal.GRAPH_SCORES[name]
        if parts is None:
            parts = client_graphs(self._repetition.graph, self._repetition.partition)
        alike = self.similar(parts) if entry.similar else [(None, None)] * len(parts)
        held = [
            conformal.graph_scores(base[part.nodes], part.edge_index, nodes, weight)
            for part, (nodes, weight) in zip(parts, alike, strict=True)
        ]
        y, roles = self._repetition.graph.y.numpy(), self._repetition.roles
        valid = [np.flatnonzero(roles[part.nodes] == Role.VALID) for part in parts]
        grid = conformal.SNAPS_GRID if entry.similar else conformal.DAPS_GRID
        chosen = self._engine.ask(
            conformal.diffusion_server(grid=grid),
            conformal.diffusion_client,
            [
                (own.at(nodes), y[part.nodes[nodes]])
                for own, nodes, part in zip(held, valid, parts, strict=True)
            ],
            kind=f"weights of {name}",
            on_message=ledger.listener(),
        )
        ledger.announce(f"chosen weights of {name}", np.array(chosen, np.float64), len(parts))
        scores = np.empty_like(base)
        for part, own in zip(parts, held, strict=True):
            scores[part.nodes] = own.combined(chosen)
        return scores, chosen

    def similar(self, parts: Sequence[ClientGraph]) -> list[Alike]:
        """Every client's similar nodes; features alone decide, so all methods share them."""
        if len(parts) not in self._alike:
            self._alike[len(parts)] = similar_at(feature_matrix(self._repetition.graph), parts)
        return self._alike[len(parts)]
