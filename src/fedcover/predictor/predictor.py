"""Sets for the nodes of a graph from a model that was trained and calibrated before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover import conformal
from fedcover.errors import DataError, UsageError
from fedcover.federation import Client, Plan
from fedcover.federation.forward import forward
from fedcover.graphs.assemble import feature_matrix, with_features
from fedcover.graphs.check import check_graph
from fedcover.graphs.partition import ClientGraph, Partition, client_graphs
from fedcover.graphs.scaling import Scaling, scaled
from fedcover.graphs.schema import Schema
from fedcover.graphs.splits import Role
from fedcover.models import Weights
from fedcover.neighbors.augment import augment
from fedcover.personal.mixture import TINY, mixed
from fedcover.predictor.calibration import Calibration
from fedcover.predictor.known import Known, fingerprints, hashed, touched

PROMISES = {
    "test": "yes",
    "unlabelled": "if labels are missing at random",
    "changed": "no: it or its neighbourhood has changed since calibration",
    "new": "no: it is new, which needs new calibration nodes",
    "train": "no: the model was trained on it",
    "valid": "no: the model was chosen with it",
    "calib": "no: the threshold was chosen with it",
}
"""Whether a node's set keeps its level, by what the node is."""

_SEED = 0x0DD  # of the u of nodes that are new


@dataclass(frozen=True)
class Generated:
    """A client's generated neighbours: their features, and (2, m) which is linked to which node,
    the latter by its name's hash."""

    features: sparse.csr_array
    source: NDArray[np.int64]
    target: NDArray[np.uint64]
    weight: float


@dataclass(frozen=True)
class Model:
    """One kind of model of a recipe: its plan, and the weights of every client."""

    plan: Plan
    weights: Sequence[Weights]
    prior: NDArray[np.float64]  # clients × labels, added to the logits
    temperature: float = 1.0  # before it is mixed with others


@dataclass(frozen=True)
class Predictor:
    """Everything from a graph to prediction sets; :meth:`predict` is what most need."""

    method: str
    seed: int
    labels: tuple[str, ...]
    features: int
    clients: tuple[str, ...]
    given: bool  # whether clients come from the graph's own column
    whole: bool  # whether one owner sees all edges (the method ``central``)
    models: tuple[Model, ...]
    mixture: NDArray[np.float64] | None  # clients × models; None: the last model alone
    generated: tuple[Generated | None, ...]
    temperature: float
    raps: conformal.RapsConstants | None
    empty_sets: bool
    calibrations: Mapping[str, Calibration]  # by score
    known: Known
    schema: Schema | None = None  # of the tables that it was trained with
    scaling: Scaling | None = None  # of their features
    card: Mapping[str, Any] = field(default_factory=dict)

    def predict(
        self,
        graph: Data,
        alpha: float = 0.1,
        score: str | None = None,
        only: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """One row a node: its set at level 1 − ``alpha``, and whether the level is promised for it.

        ``only`` keeps nodes of these kinds (the keys of ``PROMISES``).
        """
        score = self.chosen_score(score)
        q_hats = self.calibrations[score].q_hats(alpha)
        for kind in only or ():
            if kind not in PROMISES:
                raise UsageError(f"only has {kind!r}; it must be one of {', '.join(PROMISES)}.")
        graph, seen = self._look_at(graph)
        probs = self._probs(graph, seen)
        scores = conformal.score(score, probs, seen.u, self.raps)
        if not self.empty_sets:
            scores[np.arange(len(scores)), scores.argmin(axis=1)] = -np.inf
        sets = self._sets(graph, seen, scores, q_hats, self.calibrations[score])
        table = self._table(graph, seen, probs, sets)
        return table if only is None else table.filter(pl.col("kind").is_in(list(only)))

    def probs(self, graph: Data) -> NDArray[np.float64]:
        """Every node's calibrated probabilities, nodes × ``labels``."""
        return self._probs(*self._look_at(graph))

    def q_hat(self, alpha: float, score: str | None = None) -> float:
        """The threshold at level 1 − ``alpha``; the pooled one, where groups have their own."""
        return self.calibrations[self.chosen_score(score)].q_hat(alpha)

    def _sets(
        self,
        graph: Data,
        seen: _Seen,
        scores: NDArray[np.float32],
        q_hats: NDArray[np.float32],
        calibration: Calibration,
    ) -> NDArray[np.bool_]:
        """As :mod:`fedcover.experiment.calibration` makes them in a run."""
        groups = calibration.groups
        if groups is None:
            return conformal.prediction_sets(scores, q_hats[0])
        if calibration.kind == "class":
            return conformal.prediction_sets(scores, q_hats, per="label")
        member = seen.client
        if calibration.kind == "group":
            member = _numbered(graph, "group", groups.names)
        return conformal.prediction_sets(scores, q_hats[member], per="node")

    def chosen_score(self, score: str | None = None) -> str:
        """The score itself, if the predictor was calibrated for it; by default the run's first."""
        if score is None:
            return next(iter(self.calibrations))
        if score not in self.calibrations:
            raise UsageError(
                f"score is {score!r}; this predictor was calibrated for "
                f"{', '.join(self.calibrations)}."
            )
        return score

    def _look_at(self, graph: Data) -> tuple[Data, _Seen]:
        graph = check_graph(graph, labelled=False)
        self._check(graph)
        seen = _Seen.of(self, graph)
        if self.scaling is None:
            return graph, seen
        missing = graph.missing.numpy() if "missing" in graph else None
        return with_features(graph, scaled(feature_matrix(graph), self.scaling, missing)), seen

    def _probs(self, graph: Data, seen: _Seen) -> NDArray[np.float64]:
        return conformal.softmax(self._logits(graph, seen), self.temperature)

    def _check(self, graph: Data) -> None:
        if graph.x.shape[1] != self.features:
            raise DataError(
                f"{graph.name} has {graph.x.shape[1]} features; the predictor was trained with "
                f"{self.features}."
            )
        if "missing" in graph and self.scaling is None:
            raise DataError(
                f"{graph.name} has missing values; the predictor was trained without any, and has "
                "nothing to put in their place."
            )
        strange = [label for label in graph.label_names if label not in self.labels]
        if strange:
            raise DataError(
                f"{graph.name} has the label {strange[0]!r}; the predictor knows "
                f"{', '.join(self.labels)}."
            )

    def _logits(self, graph: Data, seen: _Seen) -> NDArray[np.float32]:
        cut = Partition(
            np.zeros_like(seen.client) if self.whole else seen.client,
            1 if self.whole else len(self.clients),
            "given",
            0,
            np.empty((2, 0), dtype=np.int64),
            ("all",) if self.whole else self.clients,
        )
        parts = client_graphs(graph, cut)
        x, y = feature_matrix(graph), np.zeros(len(seen.names), dtype=np.int64)
        clients = []
        for number, part in enumerate(parts):
            train = np.flatnonzero(seen.role[part.nodes] == Role.TRAIN)
            client = Client(
                x[part.nodes],
                part.edge_index,
                y[part.nodes],
                train if len(train) else np.zeros(1, dtype=np.int64),
                np.empty(0, dtype=np.int64),
            )
            clients.append(self._augmented(client, seen.names[part.nodes], number))
        outputs = [self._output(clients, parts, model) for model in self.models]
        if self.mixture is None:
            return outputs[-1]
        probs = [
            conformal.softmax(own, model.temperature)
            for own, model in zip(outputs, self.models, strict=True)
        ]
        together = mixed(probs, self.mixture[seen.client])
        return np.asarray(np.log(np.maximum(together, TINY)).astype(np.float32))

    def _augmented(self, client: Client, names: NDArray[np.uint64], number: int) -> Client:
        """The client's graph with its generated neighbours, as far as their nodes are there."""
        generated = self.generated[number]
        if generated is None:
            return client
        order = np.argsort(names)
        at = np.minimum(np.searchsorted(names, generated.target, sorter=order), len(order) - 1)
        local, still = order[at], names[order[at]] == generated.target
        links = np.stack([generated.source[still], local[still]])
        return augment(client, generated.features, links, generated.weight)

    def _output(
        self, clients: Sequence[Client], parts: Sequence[ClientGraph], model: Model
    ) -> NDArray[np.float32]:
        if model.prior.any():
            clients = [
                replace(client, offset=np.tile(prior, (client.nodes, 1)))
                for client, prior in zip(clients, model.prior, strict=True)
            ]
        rows = forward(clients, model.weights, model.plan)
        logits = np.empty((sum(len(p.nodes) for p in parts), len(self.labels)), dtype=np.float32)
        for part, own in zip(parts, rows, strict=True):
            logits[part.nodes] = own[: len(part.nodes)]
        return logits

    def _table(
        self, graph: Data, seen: _Seen, probs: NDArray[np.floating], sets: NDArray[np.bool_]
    ) -> pl.DataFrame:
        from fedcover.experiment.frames import spelt_sets

        y = self._labels(graph)
        known = y >= 0
        names = np.array([*self.labels, None], dtype=object)
        covered = sets[np.arange(len(y)), np.maximum(y, 0)]
        kind = pl.Series("kind", seen.kinds().tolist(), dtype=pl.String)
        return pl.DataFrame(
            {
                "node": pl.Series(np.asarray(graph.node_ids)).cast(pl.String),
                "client": np.array(self.clients, dtype=object)[seen.client].tolist(),
                "kind": kind,
                "label": pl.Series(names[y].tolist(), dtype=pl.String),
                "set": spelt_sets(sets, self.labels),
                "size": sets.sum(axis=1),
                "covered": pl.Series(
                    [bool(c) if k else None for c, k in zip(covered, known, strict=True)],
                    dtype=pl.Boolean,
                ),
                "top": np.array(self.labels, dtype=object)[probs.argmax(axis=1)].tolist(),
                "confidence": probs.max(axis=1).astype(np.float32),
            }
        ).with_columns(kind.replace_strict(PROMISES, return_dtype=pl.String).alias("promise"))

    def _labels(self, graph: Data) -> NDArray[np.int64]:
        """The graph's labels, numbered as the predictor has them; -1: unknown."""
        number = {label: k for k, label in enumerate(self.labels)}
        table = np.array([*(number[label] for label in graph.label_names), -1])
        return np.asarray(table[graph.y.numpy()])


@dataclass(frozen=True)
class _Seen:
    """A graph's nodes as the predictor sees them."""

    names: NDArray[np.uint64]
    client: NDArray[np.int64]
    role: NDArray[np.int8]  # -1: none
    u: NDArray[np.float64]
    new: NDArray[np.bool_]
    changed: NDArray[np.bool_]

    @classmethod
    def of(cls, predictor: Predictor, graph: Data) -> _Seen:
        known, names = predictor.known, hashed(graph.node_ids)
        place = known.places(names)
        new = place < 0
        client = np.where(new, -1, known.client[place])
        if predictor.given:
            own = _numbered(graph, "client", predictor.clients)
            client = np.where(new, own, client)
        elif new.any():
            client = _joined(graph, client, len(predictor.clients))
        role = np.where(new, np.int8(-1), known.role[place])
        drawn = (names ^ np.uint64(_SEED)).astype(np.float64) / 2.0**64
        u = np.where(new, np.minimum(drawn, np.nextafter(1.0, 0.0)), known.u[place])
        differs = new | (fingerprints(graph, names) != known.print[place])
        return cls(names, client, role, u, new, touched(graph, differs))

    def kinds(self) -> NDArray[np.object_]:
        """What each node is, as in ``PROMISES``."""
        words = np.array([role.name.lower() for role in Role] + ["unlabelled"], dtype=object)
        kinds = words[self.role]
        kinds[self.changed & np.isin(self.role, (-1, Role.TEST))] = "changed"
        kinds[self.new] = "new"
        return np.asarray(kinds)


def _numbered(graph: Data, column: str, names: Sequence[str]) -> NDArray[np.int64]:
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
