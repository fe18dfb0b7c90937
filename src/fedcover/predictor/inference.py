"""What a predictor's models say about a graph: its nodes' probabilities and scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover import conformal
from fedcover.errors import DataError
from fedcover.graphs.assemble import aligned, feature_matrix, with_features
from fedcover.graphs.check import check_graph
from fedcover.graphs.partition import ClientGraph, Partition, client_graphs
from fedcover.graphs.scaling import Scaling, scaled
from fedcover.graphs.similar import Alike, similar_to
from fedcover.graphs.splits import Role
from fedcover.hashing import splitmix
from fedcover.models import Weights
from fedcover.models.gnn import operators
from fedcover.models.mixture import TINY, mixed
from fedcover.party.augment import augment, widened
from fedcover.predictor.nodes import GraphNodes, inside, located, touched
from fedcover.training.plan import PartyGraph, Plan
from fedcover.training.program import forward

if TYPE_CHECKING:
    from fedcover.predictor.predictor import Predictor

PLANNED = ("model", "classes", "hidden", "batch_size", "unit_features")
"""What of a plan matters after training, and is kept."""


@dataclass(frozen=True)
class Model:
    """One kind of model of a recipe: its plan, and the weights of every client."""

    plan: Plan
    weights: Sequence[Weights]
    prior: NDArray[np.float64]  # clients × labels, added to the logits
    temperature: float = 1.0  # before it is mixed with others

    @property
    def shared(self) -> bool:
        """Whether all clients have the same weights."""
        return all(one is self.weights[0] for one in self.weights)

    @property
    def columns(self) -> int:
        """How many features it reads."""
        return len(self.weights[0].first) // operators(self.plan.model)


@dataclass(frozen=True)
class View:
    """What is asked for is computed once."""

    predictor: "Predictor"
    graph: Data  # its features on the predictor's scale
    nodes: GraphNodes
    similar: list[Alike] | None = None  # where the caller has them

    @classmethod
    def of(cls, predictor: "Predictor", graph: Data) -> "View":
        """Refuses a graph that does not fit."""
        graph = check_graph(graph, labelled=False)
        if predictor.schema is not None:
            graph = aligned(graph, predictor.schema)
        _check(predictor, graph)
        nodes = GraphNodes.of(graph, predictor)
        return cls(predictor, rescaled(graph, predictor.scaling), nodes)

    @cached_property
    def probs(self) -> NDArray[np.float64]:
        """Every node's calibrated probabilities, nodes × labels."""
        return conformal.softmax(self._logits(), self.predictor.temperature)

    def scores(self, name: str) -> NDArray[np.float32]:
        """Every node's scores, nodes × labels."""
        graph, raps = conformal.GRAPH_SCORES.get(name), self.predictor.raps
        scores = conformal.score(graph.base if graph else name, self.probs, self.nodes.u, raps)
        if graph is None:
            return scores
        alike = self.alike if graph.similar else [(None, None)] * len(self._parts)
        mixture = np.empty_like(scores)
        for part, near in zip(self._parts, alike, strict=True):
            held = conformal.graph_scores(scores[part.nodes], part.edge_index, *near)
            mixture[part.nodes] = held.combined(self.predictor.diffusion[name])
        return mixture

    def changed(self, name: str) -> NDArray[np.bool_]:
        """Which nodes' scores may differ from those that they had in the run."""
        graph, changed = conformal.GRAPH_SCORES.get(name), self.nodes.changed
        if graph is None:
            return changed
        predictor, nodes = self.predictor, self.nodes
        reached = touched(inside(self.graph, nodes.client, predictor.whole), changed, 1)
        if graph.similar and predictor.known.alike is not None:
            reached |= self.alike_prints() != predictor.known.alike[nodes.place]
            for part, (similar, _) in zip(self._parts, self.alike, strict=True):
                near = (similar >= 0) & changed[part.nodes][similar]
                reached[part.nodes[near.any(axis=1)]] = True
        return reached

    def alike_prints(self) -> NDArray[np.uint64]:
        """For every node eight bytes that change with the list of nodes that are similar to it."""
        prints = np.empty(len(self.nodes.names), dtype=np.uint64)
        for part, (similar, _) in zip(self._parts, self.alike, strict=True):
            names = self.nodes.names[part.nodes]
            listed = np.where(similar >= 0, splitmix(names[similar]), np.uint64(0))
            prints[part.nodes] = listed.sum(axis=1, dtype=np.uint64)
        return prints

    @cached_property
    def alike(self) -> list[Alike]:
        """By client, the nodes that are similar to each of its own."""
        x = feature_matrix(self.graph)
        return self.similar or [similar_to(x[part.nodes]) for part in self._parts]

    @cached_property
    def _parts(self) -> list[ClientGraph]:
        nodes, predictor = self.nodes, self.predictor
        if predictor.whole:
            parts = [ClientGraph(np.arange(len(nodes.names)), self.graph.edge_index.numpy())]
        else:
            cut, clients = np.empty((2, 0), dtype=np.int64), predictor.clients
            given = Partition(nodes.client, len(clients), "given", 0, cut, clients)
            parts = client_graphs(self.graph, given)
        # As in the run, new ones last.
        rank = np.where(nodes.new, len(predictor.known.names), nodes.place)
        return [
            _in_order(part, np.lexsort((nodes.names[part.nodes], rank[part.nodes])))
            for part in parts
        ]

    def _logits(self) -> NDArray[np.float32]:
        predictor, parties = self.predictor, self._parties()
        said = []
        for model in predictor.models:
            rows = forward(parties, model.weights, model.plan)
            logits = np.empty((len(self.nodes.names), len(predictor.labels)), dtype=np.float32)
            for part, own, prior in zip(self._parts, rows, model.prior, strict=True):
                logits[part.nodes] = own[: len(part.nodes)] + prior.astype(np.float32)
            said.append((logits, model.temperature))
        if predictor.mixture is None:
            return said[0][0]
        probs = [conformal.softmax(*one) for one in said]
        together = mixed(probs, predictor.mixture[self.nodes.client])
        return np.asarray(np.log(np.maximum(together, TINY)).astype(np.float32))

    def _parties(self) -> list[PartyGraph]:
        """The clients' graphs with their generated neighbours, as far as these' nodes are there."""
        x, parties = widened(feature_matrix(self.graph), self.predictor.models[0].columns), []
        for part, generated in zip(self._parts, self.predictor.generated, strict=True):
            train = np.flatnonzero(self.nodes.role[part.nodes] == Role.TRAIN)
            party = PartyGraph(
                x[part.nodes],
                part.edge_index,
                np.zeros(len(part.nodes), dtype=np.int64),
                train if len(train) else np.zeros(1, dtype=np.int64),
                np.empty(0, dtype=np.int64),
            )
            if generated is not None:
                local = located(self.nodes.names[part.nodes], generated.target)
                there = local >= 0
                links = np.stack([generated.source, local])[:, there]
                party = augment(party, generated.features, links, generated.weight[there])
            parties.append(party)
        return parties


def _in_order(part: ClientGraph, order: NDArray[np.int64]) -> ClientGraph:
    """A client's nodes in this order. In that of the run, sums run as they did then, and of nodes
    that are equally similar the same ones are taken, wherever they stand by now."""
    if np.array_equal(order, np.arange(len(order))):
        return part
    source, target = np.argsort(order)[part.edge_index]  # the positions that nodes have now
    edges = np.stack([source, target])[:, np.lexsort((target, source))]
    return ClientGraph(part.nodes[order], edges)


def rescaled(graph: Data, scaling: Scaling | None) -> Data:
    """The graph with its features on the predictor's scale, gaps filled."""
    if scaling is None:
        return graph
    missing = graph.missing.numpy() if "missing" in graph else None
    return with_features(graph, scaled(feature_matrix(graph), scaling, missing))


def _check(predictor: "Predictor", graph: Data) -> None:
    """Refuse other features or labels, and a gap where the training nodes' mean is not known."""
    if graph.x.shape[1] != predictor.features:
        raise DataError(
            f"{graph.name} has {graph.x.shape[1]} features; the predictor was trained with "
            f"{predictor.features}."
        )
    if "missing" in graph:
        known, scaling = np.zeros(predictor.features, dtype=bool), predictor.scaling
        if scaling is not None:
            known = (scaling.mean != 0) | (scaling.scale != 1)
            known[list(predictor.gaps)] = True
        gaps = graph.missing.numpy()
        gaps = gaps[:, ~known[gaps[1]]]
        if gaps.size:
            row, column = gaps[:, 0]
            name = graph.feature_names[column] if "feature_names" in graph else column
            raise DataError(
                f"{graph.name}: node {graph.node_ids[row]} has no {name}; no training node was "
                "without it, so that the predictor has nothing to put in its place."
            )
    if strange := [label for label in graph.label_names if label not in predictor.labels]:
        raise DataError(
            f"{graph.name} has the label {strange[0]!r}; the predictor knows "
            f"{', '.join(predictor.labels)}."
        )
