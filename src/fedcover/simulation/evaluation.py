"""A calibrated method, judged as only a simulation can: many re-splits, groups, single nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.algorithm.calibrate import Thresholds
from fedcover.algorithm.session import Outcome
from fedcover.config import Config
from fedcover.conformal.checks import check_shares
from fedcover.conformal.temperature import MAX_TEMPERATURE
from fedcover.graphs.inspection import TEST_SLACK
from fedcover.graphs.partition import boundary
from fedcover.graphs.splits import Role, resplits
from fedcover.party import calibration
from fedcover.plans import cases_of
from fedcover.simulation.frames import scores_frame, sets_frame
from fedcover.simulation.repetition import Federation, Repetition

DEGREES = ("0", "1", "2-3", "4-7", "8-15", "16+")
POSITIONS = ("interior", "boundary")


_NAMED = 8  # groups that a note lists


@dataclass
class Evaluation:
    """The rows of one method and seed."""

    results: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    sets: list[pl.DataFrame] = field(default_factory=list)
    scores: list[pl.DataFrame] = field(default_factory=list)  # of the nodes a page shows
    notes: list[str] = field(default_factory=list)
    thresholds: list[dict[str, Any]] = field(default_factory=list)  # where groups have their own


class Judge:
    """What all methods of one repetition are judged by: the same nodes and re-splits."""

    def __init__(
        self,
        repetition: Repetition,
        config: Config,
        shown: NDArray[np.int64] | None = None,
    ) -> None:
        """``shown``: nodes whose scores of all labels are kept, for a page to explain sets by."""
        graph, partition = repetition.graph, repetition.partition
        self.shown = shown
        self.repetition, self.config = repetition, config
        if config.mixture is not None:
            check_shares(config.mixture, partition.clients, "mixture")  # before any training
        self.y = graph.y.numpy()
        self.pool = np.flatnonzero(repetition.roles >= Role.CALIB)
        self.client = partition.client[self.pool]
        rng = np.random.default_rng([repetition.seed, 0xC0F])
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

    def evaluate(self, federation: Federation, outcome: Outcome) -> Evaluation:
        """Judge the sets of a method that the parties have calibrated."""
        found, method = outcome.calibrated, str(outcome.recipe)
        evaluation = Evaluation(notes=self._notes())
        if np.isclose(found.temperature, MAX_TEMPERATURE):
            evaluation.notes.append(
                f"the temperature stopped at its bound, {found.temperature:g}: the logits are "
                "far from probabilities; are the features scaled?"
            )
        parties = federation.parties
        probs = federation.gathered([calibration.probs(party, method) for party in parties])
        accuracy = float(np.mean(probs[self.pool].argmax(axis=1) == self.y[self.pool]))
        thresholds = iter(zip(cases_of(self.config), found.thresholds, strict=True))
        for name in self.config.scores:
            own = [calibration.scores(party, method, name) for party in parties]
            scores = federation.gathered(own).copy()
            self._judge(name, scores, accuracy, federation, outcome, thresholds, evaluation)
            if self.shown is not None:
                kept = scores_frame(self.repetition, self.shown, probs, scores, name)
                evaluation.scores.append(kept)
        return evaluation

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

    def _legend(self) -> str:
        """What the numbers of clients in a note stand for, where clients have names."""
        names = self.repetition.partition.names
        if names == tuple(map(str, range(len(names)))):
            return ""
        return f" Clients: {', '.join(f'{k} is {name}' for k, name in enumerate(names))}."

    def _judge(
        self,
        name: str,
        scores: NDArray[np.float32],
        accuracy: float,
        federation: Federation,
        outcome: Outcome,
        thresholds: Any,
        evaluation: Evaluation,
    ) -> None:
        config, y, method = self.config, self.y, str(outcome.recipe)
        true = scores[np.arange(len(y)), y]
        if not config.empty_sets:  # the likeliest label always belongs to the set, whatever q̂ is
            scores[np.arange(len(y)), scores.argmin(axis=1)] = -np.inf
        test = np.flatnonzero(self.repetition.roles == Role.TEST)
        member = self._member()
        # Parties number their groups by name, whatever order the graph has them in.
        grouped = config.calibrate == "group"
        names = federation.session.groups if grouped else self.group_names.get(config.calibrate, ())
        for rule in config.quantiles:
            q_hats = self._over_resplits(rule, true, federation, outcome, member)
            for a, alpha in enumerate(config.alphas):
                case, found = next(thresholds)
                sets = self._sets(federation, method, cases_of(config).index(case))
                self._note(rule, alpha, found, names, evaluation)
                judged = conformal.evaluate_resplits(
                    scores[self.pool],
                    y[self.pool],
                    q_hats[:, a],
                    ~self.is_calibration,
                    self.groups,
                    node_group=None if config.calibrate in ("pooled", "class") else member,
                )
                key = {"score": name, "quantile": rule, "alpha": alpha}
                pooled = config.calibrate == "pooled"
                evaluation.results.append(
                    {
                        **key,
                        "n_calibration": found.pooled.n_calibration,
                        "n_test": len(test),
                        "q_hat": found.pooled.q_hat if pooled else None,
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
                evaluation.groups += [{**key, **row} for row in self._group_rows(judged)]
                evaluation.thresholds += [
                    {**key, **row} for row in self._threshold_rows(found, names)
                ]
                evaluation.sets.append(sets_frame(self.repetition, test, sets, key))

    def _member(self) -> NDArray[np.int64] | None:
        """Which threshold each node of the pool takes; None: there is one for all."""
        kind = self.config.calibrate
        return None if kind == "pooled" else self.groups[kind]

    def _over_resplits(
        self,
        rule: str,
        true: NDArray[np.float32],
        federation: Federation,
        outcome: Outcome,
        member: NDArray[np.int64] | None,
    ) -> NDArray[np.float32]:
        """q̂ of every re-split and level, (R, levels), and group where groups have their own."""
        common = (rule, true[self.pool], self.client)
        clients = len(federation.parties)
        if member is not None:
            return conformal.group_quantiles_over_resplits(
                *common,
                member,
                self.is_calibration,
                self.config.alphas,
                clients=clients,
                groups=len(self.group_names[self.config.calibrate]),
            )
        shares = outcome.calibrated.shares if rule == "mixture" else None
        return conformal.quantile_over_resplits(
            *common, self.is_calibration, self.config.alphas, clients=clients, shares=shares
        )

    def _sets(self, federation: Federation, method: str, case: int) -> NDArray[np.bool_]:
        """The parties' sets of their test nodes, in the order of the graph."""
        test = self.repetition.roles == Role.TEST
        order = np.argsort(self.repetition.partition.client[test], kind="stable")
        joined = np.concatenate([party.sets[method][case] for party in federation.parties])
        sets = np.empty_like(joined)
        sets[order] = joined
        return sets

    def _threshold_rows(self, found: Thresholds, names: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {
                "kind": self.config.calibrate,
                "group": name,
                "n_calibration": own.n_calibration,
                "clients": own.clients,
                "q_hat": own.q_hat,
                "fell_back": own.fell_back,
            }
            for name, own in zip(names, found.groups, strict=True)
        ]

    def _note(
        self,
        rule: str,
        alpha: float,
        found: Thresholds,
        names: Sequence[str],
        evaluation: Evaluation,
    ) -> None:
        note = found.pooled.note
        if found.groups:
            note = group_note(self.config.calibrate, names, alpha, found)
        elif note and rule in ("average", "mixture"):
            note += self._legend()
        if note:
            evaluation.notes.append(f"quantile {rule}: {note}")

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


def group_note(kind: str, names: Sequence[str], alpha: float, found: Thresholds) -> str:
    """A sentence about groups that have too few calibration nodes for the level; "" if none has."""
    small = [name for name, own in zip(names, found.groups, strict=True) if own.fell_back]
    if not small:
        return ""
    listed = ", ".join(small[:_NAMED])
    more = f" and {len(small) - _NAMED} more" if len(small) > _NAMED else ""
    return (
        f"alpha = {alpha:g} asks for more calibration nodes than {len(small)} of {len(names)} have "
        f"by {kind} ({listed}{more}): they take the pooled threshold or their largest score, and "
        f"this level is not promised for each of them. {found.pooled.note}"
    ).rstrip()
