"""A calibrated method, judged as only a simulation can: many re-splits, groups, single nodes."""

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
from fedcover.predictor.calibration import Groups, total_variation
from fedcover.simulation.repetition import Federation, Repetition
from fedcover.tables import KEY, RATES, sets_frame, spelt

DEGREES = ("0", "1", "2-3", "4-7", "8-15", "16+")
_NAMED = 8  # groups that a note lists


@dataclass
class Evaluation:
    """The rows of one method and seed."""

    notes: list[str]
    results: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    thresholds: list[dict[str, Any]] = field(default_factory=list)  # where groups have their own
    sets: list[pl.DataFrame] = field(default_factory=list)
    scores: list[pl.DataFrame] = field(default_factory=list)  # of the nodes a page shows


class Judge:
    """What all methods of one repetition are judged by: the same nodes and re-splits."""

    def __init__(
        self, repetition: Repetition, config: Config, shown: NDArray[np.int64] | None = None
    ) -> None:
        """``shown``: nodes whose scores of all labels are kept, for a page to explain sets by."""
        graph, partition = repetition.graph, repetition.partition
        self.shown, self.repetition, self.config = shown, repetition, config
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
        lost = boundary(graph, partition).astype(np.int64)
        kinds = [
            Groups("client", partition.names, partition.client),
            Groups("class", tuple(graph.label_names), self.y),
            Groups("degree", DEGREES, bins),
            Groups("position", ("interior", "boundary"), lost),
        ]
        if "group" in graph:
            kinds.append(Groups("group", tuple(graph.group_names), graph.group.numpy()))
        self.kinds = {one.kind: one for one in kinds}
        self.groups = {one.kind: one.member[self.pool] for one in kinds}  # as metrics take them

    def evaluate(self, federation: Federation, outcome: Outcome) -> Evaluation:
        """Judge the sets of a method that the parties have calibrated."""
        method, parties = str(outcome.recipe), federation.parties
        evaluation = Evaluation(self._notes(outcome.calibrated.temperature))
        probs = federation.gathered([calibration.probs(party, method) for party in parties])
        for name in self.config.scores:
            own = [calibration.scores(party, method, name) for party in parties]
            scores = federation.gathered(own).copy()
            self._judge(name, scores, federation, outcome, evaluation)
            if self.shown is not None:
                ids = np.asarray(self.repetition.graph.node_ids)[self.shown]
                rows = {"probs": probs[self.shown].astype(np.float32), "scores": scores[self.shown]}
                lists = {key: pl.Series(values).arr.to_list() for key, values in rows.items()}
                named = {"method": method, "score": name, "node": pl.Series(ids).cast(pl.String)}
                evaluation.scores.append(pl.DataFrame(named | lists))
        recipe, seconds = outcome.recipe, federation.carried.seconds
        common = {
            "dataset": self.repetition.graph.name,
            "clients": len(parties),
            "partition": self.config.partition,
            "model": recipe.method.model or self.config.model,
            "accuracy": float(np.mean(probs[self.pool].argmax(axis=1) == self.y[self.pool])),
            "train_seconds": round(sum(seconds.get(p, 0.0) for p in recipe.models.values()), 4),
        }
        evaluation.results = [common | row for row in evaluation.results]
        return evaluation

    def _notes(self, temperature: float) -> list[str]:
        """What the split says about the promise, before any model; and what the temperature."""
        client, clients = self.repetition.partition.client, self.repetition.partition.clients
        owners = (client[self.repetition.roles == role] for role in Role)
        _, valid, calib, test = (np.bincount(own, minlength=clients) for own in owners)
        notes = []
        if not valid.any():
            notes.append(
                "there are no validation nodes: the last round is kept, T = 1, and RAPS is APS."
            )
        apart = total_variation(test, calib + 1)
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
            apart = total_variation(test, np.array(self.config.mixture))
            if apart > TEST_SLACK:
                notes.append(
                    "quantile mixture: the guarantee is for the clients' shares in --mixture, and "
                    "test nodes are spread over them otherwise (total variation "
                    f"{apart:.2f}); coverage in results.csv is the mean over test nodes."
                )
        if np.isclose(temperature, MAX_TEMPERATURE):
            notes.append(
                f"the temperature stopped at its bound, {temperature:g}: the logits are "
                "far from probabilities; are the features scaled?"
            )
        return notes

    def _judge(
        self,
        name: str,
        scores: NDArray[np.float32],
        federation: Federation,
        outcome: Outcome,
        evaluation: Evaluation,
    ) -> None:
        """Enter the rows of one score."""
        config, y, kind, pool = self.config, self.y, self.config.calibrate, self.pool
        graph, partition = self.repetition.graph, self.repetition.partition
        method, found = str(outcome.recipe), outcome.calibrated
        true = scores[pool, y[pool]]
        if not config.empty_sets:  # the likeliest label always belongs to the set, whatever q̂ is
            scores[np.arange(len(y)), scores.argmin(axis=1)] = -np.inf
        test = np.flatnonzero(self.repetition.roles == Role.TEST)
        by_party = np.argsort(partition.client[test], kind="stable")
        ids = np.asarray(graph.node_ids)[test]
        client = spelt(partition.names, partition.client[test])
        # Parties number their groups by name, whatever order the graph has them in.
        names = self.kinds[kind].names if kind in ("client", "class") else federation.session.groups
        member = None if kind in ("pooled", "class") else self.groups[kind]
        tested = ~self.is_calibration
        for rule in config.quantiles:
            q_hats = self._over_resplits(rule, true, found.shares)
            for a, alpha in enumerate(config.alphas):
                case = cases_of(config).index((name, rule, alpha))
                thresholds = found.thresholds[case]
                if note := self._note(rule, alpha, thresholds, names):
                    evaluation.notes.append(f"quantile {rule}: {note}")
                judged = conformal.evaluate_resplits(
                    scores[pool], y[pool], q_hats[:, a], tested, self.groups, node_group=member
                )
                gap = conformal.class_coverage_gap(judged.groups["class"], alpha)
                values = (method, name, rule, alpha, self.repetition.seed)
                key = dict(zip(KEY, values, strict=True))
                evaluation.results.append(
                    {
                        **key,
                        "n_calibration": thresholds.pooled.n_calibration,
                        "n_test": len(test),
                        "q_hat": thresholds.pooled.q_hat if kind == "pooled" else None,
                        **{rate: getattr(judged, rate) for rate in RATES},
                        "min_client_coverage": judged.groups["client"].worst(),
                        "class_coverage_gap": gap,
                    }
                )
                evaluation.groups += [{**key, **row} for row in self._group_rows(judged)]
                evaluation.thresholds += [
                    {**key, "kind": kind, "group": group, **vars(own)}
                    for group, own in zip(names, thresholds.groups, strict=True)
                ]
                sets = np.empty((len(test), scores.shape[1]), dtype=bool)
                sets[by_party] = np.concatenate([p.sets[method][case] for p in federation.parties])
                evaluation.sets.append(
                    sets_frame(ids, client, y[test], graph.label_names, sets, **key)
                )

    def _over_resplits(
        self, rule: str, true: NDArray[np.float32], shares: Sequence[float] | None
    ) -> NDArray[np.float32]:
        """q̂ of every re-split and level, (R, levels), and group where groups have their own."""
        kind, held = self.config.calibrate, (rule, true, self.client)
        asked = self.is_calibration, self.config.alphas
        clients = self.repetition.partition.clients
        if kind == "pooled":
            shares = shares if rule == "mixture" else None
            return conformal.quantile_over_resplits(*held, *asked, clients=clients, shares=shares)
        groups = len(self.kinds[kind].names)
        return conformal.group_quantiles_over_resplits(
            *held, self.groups[kind], *asked, clients=clients, groups=groups
        )

    def _note(self, rule: str, alpha: float, found: Thresholds, names: Sequence[str]) -> str:
        """What to know of the thresholds of one case."""
        note, clients = found.pooled.note, self.repetition.partition.names
        small = [name for name, own in zip(names, found.groups, strict=True) if own.fell_back]
        if small:
            listed = ", ".join(small[:_NAMED])
            more = f" and {len(small) - _NAMED} more" if len(small) > _NAMED else ""
            return (
                f"alpha = {alpha:g} asks for more calibration nodes than {len(small)} of "
                f"{len(names)} have by {self.config.calibrate} ({listed}{more}): they take the "
                "pooled threshold or their largest score, and this level is not promised for each "
                f"of them. {note}"
            ).rstrip()
        if found.groups:
            return ""
        numbered = clients == tuple(map(str, range(len(clients))))
        if note and rule in ("average", "mixture") and not numbered:
            named = ", ".join(f"{k} is {name}" for k, name in enumerate(clients))
            return f"{note} Clients: {named}."
        return note

    def _group_rows(self, judged: conformal.ResplitMetrics) -> list[dict[str, Any]]:
        """All test nodes together, then those of every group that has some."""
        means = ("n_test", "coverage", "coverage_sd", "set_size", "set_size_sd")
        whole = {"kind": "all", "group": "all"} | {name: getattr(judged, name) for name in means}
        sizes = [str(size) for size in range(len(judged.by_size.n))]
        kinds = [(kind, judged.groups[kind], one.names) for kind, one in self.kinds.items()]
        rows = [
            {
                "kind": kind,
                "group": names[i],
                "n_test": float(metrics.n[i]),
                "coverage": float(metrics.coverage[i]),
                "set_size": float(metrics.size[i]),
            }
            for kind, metrics, names in [*kinds, ("size", judged.by_size, sizes)]
            for i in np.flatnonzero(metrics.n > 0).tolist()
        ]
        return [whole, *rows]
