"""Sets for the nodes of a graph from a model that was trained and calibrated before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover import conformal
from fedcover.errors import UsageError
from fedcover.graphs.datasets import load
from fedcover.graphs.labels import spelt_sets
from fedcover.graphs.scaling import Scaling
from fedcover.graphs.schema import Schema
from fedcover.predictor.calibration import PROMISES, Calibration, Groups, promises
from fedcover.predictor.inference import Generated, Model, View
from fedcover.predictor.nodes import RunNodes, numbered


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
    diffusion: Mapping[str, conformal.Diffusion]  # by graph score
    quantiles: tuple[str, ...]  # the run's quantile rules
    shares: tuple[float, ...] | None  # the clients' shares of test nodes, for the rule ``mixture``
    calibrations: Mapping[str, Calibration]  # by score
    known: RunNodes
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
        only: Sequence[str] | str | None = None,
        quantile: str | None = None,
    ) -> pl.DataFrame:
        """One row a node: its set at level 1 − ``alpha``, and whether the level is promised for it.

        ``graph`` may be a path or a name, as for :meth:`read`. ``only`` keeps nodes of these kinds
        (the keys of ``PROMISES``). ``score`` and ``quantile`` are among those of the run, by
        default its first.
        """
        score, rule = self.chosen("score", score), self.chosen("quantile", quantile)
        thresholds = self.thresholds(alpha, score, rule)
        only = (only,) if isinstance(only, str) else only
        for kind in only or ():
            if kind not in PROMISES:
                raise UsageError(f"only has {kind!r}; it must be one of {', '.join(PROMISES)}.")
        view = self.view(graph)
        scores = view.scores(score)
        if not self.empty_sets:
            scores[np.arange(len(scores)), scores.argmin(axis=1)] = -np.inf
        calibration = self.calibrations[score]
        member = _member(view, calibration.groups)
        kinds = view.nodes.kinds(view.changed(score) | self._regrouped(view, member))
        sets = _sets(scores, thresholds, calibration.groups, member)
        said = promises(
            kinds, view.nodes.client, member, calibration, thresholds, rule, self.shares
        )
        table = self._table(view, kinds, sets).with_columns(pl.Series("promise", said))
        return table if only is None else table.filter(pl.col("kind").is_in(list(only)))

    def probs(self, graph: Data | str | Path) -> NDArray[np.float64]:
        """Every node's calibrated probabilities, nodes × ``labels``."""
        return self.view(graph).probs

    def view(self, graph: Data | str | Path) -> View:
        """The graph as the predictor sees it: its nodes' probabilities and scores."""
        return View.of(self, self.read(graph) if isinstance(graph, str | Path) else graph)

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

    def _regrouped(self, view: View, member: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        """The nodes that were in another group, if groups have thresholds."""
        if self.known.group is None or member is None:
            return np.zeros(len(view.nodes.names), dtype=bool)
        return np.asarray(self.known.group[view.nodes.place] != member)

    def _table(
        self, view: View, kinds: NDArray[np.object_], sets: NDArray[np.bool_]
    ) -> pl.DataFrame:
        probs, y = view.probs, self._labels(view.graph)
        names = np.array([*self.labels, None], dtype=object)
        return pl.DataFrame(
            {
                "node": pl.Series(np.asarray(view.graph.node_ids)).cast(pl.String),
                "client": np.array(self.clients, dtype=object)[view.nodes.client].tolist(),
                "kind": pl.Series(kinds.tolist(), dtype=pl.String),
                "label": pl.Series(names[y].tolist(), dtype=pl.String),
                "set": spelt_sets(sets, self.labels),
                "size": sets.sum(axis=1),
                "covered": sets[np.arange(len(y)), y],
                "top": names[probs.argmax(axis=1)].tolist(),
                "confidence": probs.max(axis=1).astype(np.float32),
            }
        ).with_columns(pl.when(pl.col("label").is_not_null()).then("covered").alias("covered"))

    def _labels(self, graph: Data) -> NDArray[np.int64]:
        """The graph's labels, numbered as the predictor has them; -1: unknown."""
        number = {label: k for k, label in enumerate(self.labels)}
        table = np.array([*(number[label] for label in graph.label_names), -1])
        return np.asarray(table[graph.y.numpy()])


def _member(view: View, groups: Groups | None) -> NDArray[np.int64] | None:
    """Which threshold each node takes; None: it is not the node that decides."""
    if groups is None or groups.kind == "class":
        return None
    if groups.kind == "client":
        return view.nodes.client
    return numbered(view.graph, "group", groups.names)


def _sets(
    scores: NDArray[np.float32],
    thresholds: Sequence[conformal.Threshold],
    groups: Groups | None,
    member: NDArray[np.int64] | None,
) -> NDArray[np.bool_]:
    """As :mod:`fedcover.run.calibration` makes them in a run."""
    q_hats = np.array([threshold.q_hat for threshold in thresholds], dtype=np.float32)
    if groups is None:
        return conformal.prediction_sets(scores, q_hats[0])
    if member is None:
        return conformal.prediction_sets(scores, q_hats, per="label")
    return conformal.prediction_sets(scores, q_hats[member], per="node")
