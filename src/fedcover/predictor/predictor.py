"""Sets for the nodes of a graph from a model that was trained and calibrated before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

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
from fedcover.graphs.datasets import load
from fedcover.graphs.partition import ClientGraph, Partition, client_graphs
from fedcover.graphs.scaling import Scaling, scaled
from fedcover.graphs.schema import Schema
from fedcover.graphs.splits import Role
from fedcover.models import Weights
from fedcover.neighbors.augment import augment
from fedcover.personal.mixture import TINY, mixed
from fedcover.predictor.calibration import Calibration, Groups
from fedcover.predictor.known import Known, located
from fedcover.predictor.promise import PROMISES, promises
from fedcover.predictor.seen import Seen, numbered


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
    quantiles: tuple[str, ...]  # the run's quantile rules
    shares: tuple[float, ...] | None  # the clients' shares of test nodes, for the rule ``mixture``
    calibrations: Mapping[str, Calibration]  # by score
    known: Known
    schema: Schema | None = None  # of the tables that it was trained with
    scaling: Scaling | None = None  # of their features
    gaps: tuple[int, ...] = ()  # features that were missing at some node
    group: str | None = None  # the column of groups
    card: Mapping[str, Any] = field(default_factory=dict)

    def read(
        self,
        path: str | Path,
        data: str | Path | None = None,
        *,
        missing: str | None = None,
        group: str | None = None,
    ) -> Data:
        """Load a graph as the predictor's own was: the same columns, categories, numbers of labels
        and column of groups, and gaps imputed if there were some; ``missing`` and ``group`` say
        otherwise."""
        return load(
            path,
            data,
            missing=missing or ("impute" if self.gaps else "refuse"),
            schema=self.schema if Path(path).is_dir() else None,
            group=group or self.group,
        )

    def predict(
        self,
        graph: Data | str | Path,
        alpha: float = 0.1,
        score: str | None = None,
        only: Sequence[str] | None = None,
        quantile: str | None = None,
    ) -> pl.DataFrame:
        """One row a node: its set at level 1 − ``alpha``, and whether the level is promised for it.

        ``graph`` may be a path or a name, as for :meth:`read`. ``only`` keeps nodes of these kinds
        (the keys of ``PROMISES``). ``score`` and ``quantile`` are among those of the run, by
        default its first.
        """
        score, rule = self.chosen("score", score), self.chosen("quantile", quantile)
        thresholds = self.thresholds(alpha, score, rule)
        for kind in only or ():
            if kind not in PROMISES:
                raise UsageError(f"only has {kind!r}; it must be one of {', '.join(PROMISES)}.")
        graph, seen = self._look_at(graph)
        probs = self._probs(graph, seen)
        scores = conformal.score(score, probs, seen.u, self.raps)
        if not self.empty_sets:
            scores[np.arange(len(scores)), scores.argmin(axis=1)] = -np.inf
        calibration, kinds = self.calibrations[score], seen.kinds()
        member = self._member(graph, seen, calibration.groups)
        sets = _sets(scores, thresholds, calibration.groups, member)
        said = promises(kinds, seen.client, member, calibration, thresholds, rule)
        table = self._table(graph, seen, probs, sets).with_columns(pl.Series("promise", said))
        return table if only is None else table.filter(pl.col("kind").is_in(list(only)))

    def probs(self, graph: Data | str | Path) -> NDArray[np.float64]:
        """Every node's calibrated probabilities, nodes × ``labels``."""
        return self._probs(*self._look_at(graph))

    def q_hat(self, alpha: float, score: str | None = None, quantile: str | None = None) -> float:
        """The threshold at level 1 − ``alpha``; the pooled one, where groups have their own."""
        score, rule = self.chosen("score", score), self.chosen("quantile", quantile)
        return self.calibrations[score].pooled(alpha, rule, self.shares).q_hat

    def thresholds(
        self, alpha: float, score: str | None = None, quantile: str | None = None
    ) -> Sequence[conformal.Threshold]:
        """The thresholds of all groups in their order, or the one for everybody."""
        score, rule = self.chosen("score", score), self.chosen("quantile", quantile)
        return self.calibrations[score].thresholds(alpha, rule, self.shares)

    def chosen(self, what: Literal["score", "quantile"], name: str | None = None) -> str:
        """The name itself, if the predictor was calibrated for it; by default the run's first."""
        known = tuple(self.calibrations) if what == "score" else self.quantiles
        if name is None:
            return known[0]
        if name not in known:
            raise UsageError(
                f"{what} is {name!r}; this predictor was calibrated for {', '.join(known)}."
            )
        return name

    def _member(self, graph: Data, seen: Seen, groups: Groups | None) -> NDArray[np.int64] | None:
        """Which threshold each node takes; None: it is not the node that decides."""
        if groups is None or groups.kind == "class":
            return None
        return seen.client if groups.kind == "client" else numbered(graph, "group", groups.names)

    def _look_at(self, graph: Data | str | Path) -> tuple[Data, Seen]:
        if isinstance(graph, str | Path):
            graph = self.read(graph)
        graph = check_graph(graph, labelled=False)
        self._check(graph)
        links = [(one.source, one.target) for one in self.generated if one is not None]
        seen = Seen.of(graph, self.known, self.clients, self.given, links)
        if self.scaling is None:
            return graph, seen
        missing = graph.missing.numpy() if "missing" in graph else None
        return with_features(graph, scaled(feature_matrix(graph), self.scaling, missing)), seen

    def _probs(self, graph: Data, seen: Seen) -> NDArray[np.float64]:
        return conformal.softmax(self._logits(graph, seen), self.temperature)

    def _check(self, graph: Data) -> None:
        if graph.x.shape[1] != self.features:
            raise DataError(
                f"{graph.name} has {graph.x.shape[1]} features; the predictor was trained with "
                f"{self.features}."
            )
        if "missing" in graph:
            self._check_gaps(graph)
        strange = [label for label in graph.label_names if label not in self.labels]
        if strange:
            raise DataError(
                f"{graph.name} has the label {strange[0]!r}; the predictor knows "
                f"{', '.join(self.labels)}."
            )

    def _check_gaps(self, graph: Data) -> None:
        """Refuse a gap in a column of which the training nodes' mean is not known."""
        known = np.zeros(self.features, dtype=bool)
        if self.scaling is not None:
            known = (self.scaling.mean != 0) | (self.scaling.scale != 1)
            known[list(self.gaps)] = True
        without = np.flatnonzero(~known[graph.missing.numpy()[1]])
        if len(without):
            row, column = graph.missing.numpy()[:, without[0]]
            name = graph.feature_names[column] if "feature_names" in graph else column
            raise DataError(
                f"{graph.name}: node {graph.node_ids[row]} has no {name}; no training node was "
                "without it, so that the predictor has nothing to put in its place."
            )

    def _logits(self, graph: Data, seen: Seen) -> NDArray[np.float32]:
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
        local = located(names, generated.target)
        still = local >= 0
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
        self, graph: Data, seen: Seen, probs: NDArray[np.floating], sets: NDArray[np.bool_]
    ) -> pl.DataFrame:
        from fedcover.experiment.frames import spelt_sets

        y = self._labels(graph)
        known = y >= 0
        names = np.array([*self.labels, None], dtype=object)
        covered = sets[np.arange(len(y)), np.maximum(y, 0)]
        return pl.DataFrame(
            {
                "node": pl.Series(np.asarray(graph.node_ids)).cast(pl.String),
                "client": np.array(self.clients, dtype=object)[seen.client].tolist(),
                "kind": pl.Series(seen.kinds().tolist(), dtype=pl.String),
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
        )

    def _labels(self, graph: Data) -> NDArray[np.int64]:
        """The graph's labels, numbered as the predictor has them; -1: unknown."""
        number = {label: k for k, label in enumerate(self.labels)}
        table = np.array([*(number[label] for label in graph.label_names), -1])
        return np.asarray(table[graph.y.numpy()])


def _sets(
    scores: NDArray[np.float32],
    thresholds: Sequence[conformal.Threshold],
    groups: Groups | None,
    member: NDArray[np.int64] | None,
) -> NDArray[np.bool_]:
    """As :mod:`fedcover.experiment.calibration` makes them in a run."""
    q_hats = np.array([threshold.q_hat for threshold in thresholds], dtype=np.float32)
    if groups is None:
        return conformal.prediction_sets(scores, q_hats[0])
    if member is None:
        return conformal.prediction_sets(scores, q_hats, per="label")
    return conformal.prediction_sets(scores, q_hats[member], per="node")
