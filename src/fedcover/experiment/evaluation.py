"""From one repetition's logits to its rows: temperature, scores, quantiles, sets, metrics.

Nothing that shapes a score sees a calibration or test label (docs/guarantee.md): temperature,
RAPS's constants and the weights of graph scores come from validation nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.conformal.checks import check_shares
from fedcover.conformal.temperature import MAX_TEMPERATURE
from fedcover.experiment import temperature
from fedcover.experiment.calibration import calibration_of
from fedcover.experiment.config import Config
from fedcover.experiment.frames import scores_frame, sets_frame
from fedcover.experiment.graph_scores import Neighbourhoods
from fedcover.experiment.methods import Repetition
from fedcover.federation import Engine, InProcess
from fedcover.federation.ledger import Ledger
from fedcover.graphs.inspection import TEST_SLACK
from fedcover.graphs.partition import ClientGraph, boundary
from fedcover.graphs.splits import Role, resplits

DEGREES = ("0", "1", "2-3", "4-7", "8-15", "16+")
POSITIONS = ("interior", "boundary")


@dataclass
class Evaluation:
    """The rows of one method and seed, and what was chosen on validation nodes."""

    results: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    sets: list[pl.DataFrame] = field(default_factory=list)
    scores: list[pl.DataFrame] = field(default_factory=list)  # of the nodes a page shows
    notes: list[str] = field(default_factory=list)
    temperature: float = 1.0
    raps: conformal.RapsConstants | None = None
    diffusion: dict[str, conformal.Diffusion] = field(default_factory=dict)  # by graph score
    mixture: Sequence[float] | None = None  # the clients' shares of test nodes, for that rule
    thresholds: list[dict[str, Any]] = field(default_factory=list)  # where groups have their own
    announced: list[NDArray[np.float32]] = field(default_factory=list)  # what a client is told


class Judge:
    """What all methods of one repetition are judged by: the same u, nodes and re-splits."""

    def __init__(
        self,
        repetition: Repetition,
        config: Config,
        engine: Engine | None = None,
        shown: NDArray[np.int64] | None = None,
    ) -> None:
        """``shown``: nodes whose scores of all labels are kept, for a page to explain sets by."""
        graph, partition = repetition.graph, repetition.partition
        self.shown = shown
        self.repetition, self.config = repetition, config
        self.engine = engine or InProcess()
        if config.mixture is not None:
            check_shares(config.mixture, partition.clients, "mixture")  # before any training
        self.calibration = calibration_of(config.calibrate, repetition, self.engine)
        self.neighbourhoods = Neighbourhoods(repetition, self.engine)
        self.y = graph.y.numpy()
        self.pool = np.flatnonzero(repetition.roles >= Role.CALIB)
        self.client = partition.client[self.pool]
        rng = np.random.default_rng([repetition.seed, 0xC0F])
        self.u = rng.random(len(self.y))
        masks = resplits(repetition.roles, partition.client, config.resplits, rng)
        self.is_calibration = masks[:, self.pool]
        degree = np.bincount(graph.edge_index[0].numpy(), minlength=len(self.y))
        degree -= np.bincount(partition.cut_edges[0], minlength=len(self.y))
        bins = np.minimum(np.ceil(np.log2(degree + 1)).astype(np.int64), len(DEGREES) - 1)
        self.groups = {
            "client": self.client,
            "class": self.y[self.pool],
            "degree": bins[self.pool],
            "position": boundary(graph, partition)[self.pool].astype(np.int64),
        }
        self.group_names: dict[str, Sequence[str]] = {
            "client": partition.names,
            "class": graph.label_names,
            "degree": DEGREES,
            "position": POSITIONS,
        }
        if "group" in graph:
            self.groups["group"] = graph.group.numpy()[self.pool]
            self.group_names["group"] = graph.group_names

    def evaluate(
        self,
        logits: NDArray[np.float32],
        ledger: Ledger,
        parts: Sequence[ClientGraph] | None = None,
    ) -> Evaluation:
        """Calibrate these logits (all nodes of the graph) and judge the sets.

        ``parts`` are the graphs that graph-aware scores may look at; None: every client's own.
        """
        outcome = Evaluation(notes=self._notes())
        outcome.temperature = temperature.fit(
            self.config.temperature, logits, self.repetition, self.engine, ledger
        )
        if np.isclose(outcome.temperature, MAX_TEMPERATURE):
            outcome.notes.append(
                f"the temperature stopped at its bound, {outcome.temperature:g}: the logits are "
                "far from probabilities; are the features scaled?"
            )
        probs = conformal.softmax(logits, outcome.temperature)
        if any(conformal.base_score(name).tuned for name in self.config.scores):
            outcome.raps = self.engine.ask(
                conformal.raps_server(),
                conformal.raps_client,
                self._validation(probs, self.u),
                kind="raps constants",
                on_message=ledger.listener(),
            )
        outcome.mixture = self._shares(ledger)
        accuracy = float(np.mean(probs[self.pool].argmax(axis=1) == self.y[self.pool]))
        for name in self.config.scores:
            graph = conformal.GRAPH_SCORES.get(name)
            scores = conformal.score(graph.base if graph else name, probs, self.u, outcome.raps)
            if graph:
                scores, chosen = self.neighbourhoods.scores(name, scores, ledger, parts)
                outcome.diffusion[name] = chosen
            self._judge(name, scores, accuracy, ledger, outcome)
            if self.shown is not None:
                kept = scores_frame(self.repetition, self.shown, probs, scores, name)
                outcome.scores.append(kept)
        return outcome

    def _notes(self) -> list[str]:
        """What the split says about the promise, before any model."""
        notes = []
        if not (self.repetition.roles == Role.VALID).any():
            notes.append(
                "there are no validation nodes: the last round is kept, T = 1, and RAPS is APS."
            )
        apart = self._apart(self._counts(Role.CALIB) + 1)
        # Calibrated by client, each has its own promise, however test nodes are spread.
        weighed = "exact" in self.config.quantiles and self.config.calibrate != "client"
        if weighed and apart > TEST_SLACK:
            remedy = "; --quantiles mixture gives one for their mean"
            notes.append(
                "test nodes are not spread over the clients as calibration nodes are (total "
                f"variation {apart:.2f}): the guarantee is not for their mean, but for clients "
                "weighed by their calibration nodes"
                f"{remedy if self.config.calibrate == 'pooled' else ''}."
            )
        if self.config.mixture is not None:
            apart = self._apart(np.array(self.config.mixture))
            if apart > TEST_SLACK:
                notes.append(
                    "quantile mixture: the guarantee is for the clients' shares in --mixture, and "
                    "test nodes are spread over them otherwise (total variation "
                    f"{apart:.2f}); coverage in results.csv is the mean over test nodes."
                )
        return notes

    def _counts(self, role: Role) -> NDArray[np.int64]:
        """How many nodes of this role each client has."""
        owner = self.repetition.partition.client[self.repetition.roles == role]
        return np.bincount(owner, minlength=self.repetition.partition.clients)

    def _apart(self, weights: NDArray[Any]) -> float:
        """Total variation between these weights of the clients and their shares of test nodes."""
        test = self._counts(Role.TEST)
        return float(np.abs(test / test.sum() - weights / weights.sum()).sum() / 2)

    def _shares(self, ledger: Ledger) -> Sequence[float] | None:
        """What the rule ``mixture`` promises for: the config's shares, or the test nodes'."""
        if "mixture" not in self.config.quantiles or self.config.mixture is not None:
            return self.config.mixture
        return self.engine.ask(
            conformal.count_server(),
            conformal.count_client,
            self._counts(Role.TEST).tolist(),
            kind="test nodes",
            on_message=ledger.listener(),
        )

    def _legend(self) -> str:
        """What the numbers of clients in a note stand for, where clients have names."""
        names = self.repetition.partition.names
        if names == tuple(map(str, range(len(names)))):
            return ""
        return f" Clients: {', '.join(f'{k} is {name}' for k, name in enumerate(names))}."

    def _validation(self, *arrays: NDArray[Any]) -> list[Any]:
        """Each client's validation nodes: first array, labels, further arrays."""
        columns = [
            self.repetition.by_client(Role.VALID, a) for a in (arrays[0], self.y, *arrays[1:])
        ]
        return list(zip(*columns, strict=True))

    def _judge(
        self,
        name: str,
        scores: NDArray[np.float32],
        accuracy: float,
        ledger: Ledger,
        outcome: Evaluation,
    ) -> None:
        config, y = self.config, self.y
        true = scores[np.arange(len(y)), y]
        if not config.empty_sets:
            # The likeliest label always belongs to the set, whatever q̂ is.
            scores[np.arange(len(y)), scores.argmin(axis=1)] = -np.inf
        test = np.flatnonzero(self.repetition.roles == Role.TEST)
        for rule in config.quantiles:
            shares = outcome.mixture if rule == "mixture" else None
            q_hats = self.calibration.over_resplits(
                rule, true, self.pool, self.is_calibration, config.alphas, shares
            )
            for a, alpha in enumerate(config.alphas):
                found = self.calibration.thresholds(rule, true, alpha, shares, ledger)
                if found.note:
                    numbered = rule in ("average", "mixture") and config.calibrate == "pooled"
                    legend = self._legend() if numbered else ""
                    outcome.notes.append(f"quantile {rule}: {found.note}{legend}")
                judged = conformal.evaluate_resplits(
                    scores[self.pool],
                    y[self.pool],
                    q_hats[:, a],
                    ~self.is_calibration,
                    self.groups,
                    node_group=self.calibration.node_group(self.pool),
                )
                key = {"score": name, "quantile": rule, "alpha": alpha}
                outcome.results.append(
                    {
                        **key,
                        "n_calibration": found.n_calibration,
                        "n_test": len(test),
                        "q_hat": found.q_hat,
                        "coverage": judged.coverage,
                        "set_size": judged.set_size,
                        "singleton_rate": judged.singleton_rate,
                        "empty_rate": judged.empty_rate,
                        "min_client_coverage": judged.groups["client"].worst(),
                        "class_coverage_gap": conformal.class_coverage_gap(
                            judged.groups["class"], alpha
                        ),
                        "accuracy": accuracy,
                    }
                )
                outcome.groups += [{**key, **row} for row in self._group_rows(judged)]
                outcome.thresholds += [{**key, **row} for row in found.rows]
                outcome.announced.append(found.announced)
                sets = self.calibration.sets(scores[test], test, found)
                outcome.sets.append(sets_frame(self.repetition, test, sets, key))

    def _group_rows(self, judged: conformal.ResplitMetrics) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [
            {
                "kind": "all",
                "group": "all",
                "n_test": judged.n_test,
                "coverage": judged.coverage,
                "coverage_sd": judged.coverage_sd,
                "set_size": judged.set_size,
                "set_size_sd": judged.set_size_sd,
            }
        ]
        sizes = [str(size) for size in range(len(judged.by_size.n))]
        kinds = [(kind, judged.groups[kind], self.group_names[kind]) for kind in self.groups]
        for kind, metrics, names in [*kinds, ("size", judged.by_size, sizes)]:
            rows += [
                {
                    "kind": kind,
                    "group": names[i],
                    "n_test": float(metrics.n[i]),
                    "coverage": float(metrics.coverage[i]),
                    "coverage_sd": None,
                    "set_size": float(metrics.size[i]),
                    "set_size_sd": None,
                }
                for i in range(len(metrics.n))
                if metrics.n[i] > 0
            ]
        return rows
