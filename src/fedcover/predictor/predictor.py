"""Sets for the nodes of a graph from a model that was trained and calibrated before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover import conformal
from fedcover.errors import UsageError
from fedcover.graphs.datasets import load
from fedcover.graphs.scaling import Scaling
from fedcover.graphs.schema import Schema
from fedcover.graphs.splits import Role
from fedcover.predictor.calibration import PROMISES, Calibration, promises, promising
from fedcover.predictor.inference import Model, View
from fedcover.predictor.nodes import Generated, RunNodes
from fedcover.predictor.recalibration import Recalibration, labels, member, recalibrated
from fedcover.tables import sets_frame, spelt


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
    terms: conformal.Terms  # of the rule ``exact``
    fixed_shares: bool  # whether the user has set the shares in them
    max_share: float  # that one client may have of them
    calibrations: Mapping[str, Calibration]  # by score
    known: RunNodes
    schema: Schema | None = None  # of the tables that it was trained with
    scaling: Scaling | None = None  # of their features
    gaps: tuple[int, ...] = ()  # features that were missing at some node
    group: str | None = None  # the column of groups
    match: str | None = None  # the column of keys by which clients know the same node
    card: Mapping[str, Any] = field(default_factory=dict)
    recalibration: Recalibration | None = None  # where scores are of a later graph

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
            match=self.match,
        )

    def predict(
        self,
        graph: Data | str | Path,
        alpha: float = 0.1,
        score: str | None = None,
        only: Sequence[str] | str | None = None,
        quantile: str | None = None,
        *,
        recalibrate: bool = False,
        p_values: bool = False,
        allow_empty: bool = False,
    ) -> pl.DataFrame:
        """One row a node: its set at level 1 − ``alpha``, and whether the level is promised for it.

        ``graph`` may be a path or a name, as for :meth:`read`. ``only`` keeps nodes of these kinds
        (the keys of ``PROMISES``). ``score`` and ``quantile`` are among those of the run, by
        default its first. ``recalibrate`` takes the thresholds of :meth:`recalibrated`.

        ``p_values`` adds a column of lists: a p-value for each of ``labels``, and the set is
        {p > alpha}. Unless ``allow_empty``, a set holds at least the label with the lowest score.
        """
        if recalibrate:
            more = {"p_values": p_values, "allow_empty": allow_empty}
            return self.recalibrated(graph).predict(graph, alpha, score, only, quantile, **more)
        score, rule = self.chosen("score", score), self.chosen("quantile", quantile)
        thresholds = self.thresholds(alpha, score, rule)
        only = (only,) if isinstance(only, str) else only
        for kind in only or ():
            if kind not in PROMISES:
                raise UsageError(f"only has {kind!r}; it must be one of {', '.join(PROMISES)}.")
        view = self.view(graph)
        nodes, scores, calibration = view.nodes, view.scores(score), self.calibrations[score]
        group, changed = member(view, calibration.groups), view.changed(score)
        likely = calibration.p_values(scores, group, rule, self.terms) if p_values else None
        if not (allow_empty and self.empty_sets):  # the top label belongs to the set
            scores[np.arange(len(scores)), scores.argmin(axis=1)] = -np.inf
        q_hats = np.array([threshold.q_hat for threshold in thresholds], dtype=np.float32)
        if group is not None:
            sets = conformal.prediction_sets(scores, q_hats[group], per="node")
        elif calibration.kind == "class":
            sets = conformal.prediction_sets(scores, q_hats, per="label")
        else:
            sets = conformal.prediction_sets(scores, q_hats[0])
        if self.known.group is not None and group is not None:
            changed = changed | (self.known.group[nodes.place] != group)
        kinds = promised = nodes.kinds(changed)
        words: Mapping[str, str] = PROMISES
        if self.recalibration is not None:  # changed or not, roles were dealt alike
            promised, words = nodes.kinds(changed & False), promising(self.recalibration.p_value)
        held = None
        if self.whole and calibration.clients == 1:
            whose = self.known.client[self.known.role == Role.CALIB]
            held = np.bincount(whose, minlength=len(self.clients))
        by = calibration, thresholds, rule, self.terms, words, held
        said = promises(promised, nodes.client, group, *by)
        table = sets_frame(
            view.graph.node_ids,
            spelt(self.clients, nodes.client),
            labels(view),
            self.labels,
            sets,
        )
        table.insert_column(2, pl.Series("kind", kinds.tolist(), dtype=pl.String))
        table = table.with_columns(
            top=spelt(self.labels, view.probs.argmax(axis=1)),
            confidence=view.probs.max(axis=1).astype(np.float32),
            promise=pl.Series(said),
        )
        if likely is not None:
            table = table.with_columns(p_values=pl.Series(likely).arr.to_list())
        return table if only is None else table.filter(pl.col("kind").is_in(list(only)))

    def recalibrated(self, graph: Data | str | Path) -> "Predictor":
        """For this graph, which may have grown: its calibration nodes are scored anew, beside their
        new neighbours, so that new and changed nodes have a promise (docs/guarantee.md).

        The graph must hold their labels. Generated neighbours are left out, since new nodes have
        none. What a user must know is in ``recalibration.notes``.
        """
        alike = replace(self, generated=(None,) * len(self.generated))
        return recalibrated(alike, alike.view(graph))

    def probs(self, graph: Data | str | Path) -> NDArray[np.float64]:
        """Every node's calibrated probabilities, nodes × ``labels``."""
        return self.view(graph).probs

    def view(self, graph: Data | str | Path) -> View:
        """The graph as the predictor sees it: its nodes' probabilities and scores."""
        return View.of(self, self.read(graph) if isinstance(graph, str | Path) else graph)

    def q_hat(self, alpha: float, score: str | None = None, quantile: str | None = None) -> float:
        """The threshold at level 1 − ``alpha``; the pooled one, where groups have their own."""
        score, rule = self.chosen("score", score), self.chosen("quantile", quantile)
        return self.calibrations[score].pooled(alpha, rule, self.terms).q_hat

    def thresholds(
        self, alpha: float, score: str | None = None, quantile: str | None = None
    ) -> Sequence[conformal.Threshold]:
        """The thresholds of all groups in their order, or the one for everybody."""
        score, rule = self.chosen("score", score), self.chosen("quantile", quantile)
        return self.calibrations[score].thresholds(alpha, rule, self.terms)

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
