"""A calibrated method, judged as only a simulation can: many re-splits, groups, single nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.algorithm.calibrate import Calibrated, Thresholds, promise_terms
from fedcover.algorithm.requests import Census
from fedcover.algorithm.session import Outcome
from fedcover.config import Config
from fedcover.config.settings import check_limit, check_robust
from fedcover.conformal.checks import SLACK, check_shares, total_variation
from fedcover.conformal.exchangeability import RankSums, rank_sums
from fedcover.conformal.temperature import MAX_TEMPERATURE
from fedcover.errors import UsageError
from fedcover.graphs.partition import boundary
from fedcover.graphs.splits import NO_ROLE, Role, is_asked, resplits
from fedcover.party import calibration
from fedcover.plans import cases_of
from fedcover.predictor.calibration import Groups
from fedcover.simulation.repetition import Federation, Repetition
from fedcover.tables import HITS, KEY, RATES, SLAB, SPLIT, sets_frame, spelt

MEASURED = (
    "coverage", "coverage_sd", SPLIT, HITS, SLAB, "min_client_coverage", "class_coverage_gap",
)  # fmt: skip
"""What of a row needs true labels."""
DEGREES = ("0", "1", "2-3", "4-7", "8-15", "16+")
_NAMED = 8  # groups that a note lists
_SLABS, _IN_SLABS = 100, 2000  # directions, and nodes of a large graph: a rough search is quick


@dataclass
class Evaluation:
    """The rows of one method and seed, and how they were weighed.

    ``weights`` is what each node of the pool counts, None where all count alike; ``effective`` is
    as :meth:`Judge.effective` has it.
    """

    notes: list[str]
    weights: NDArray[np.float64] | None = None
    effective: tuple[int, int] = (0, 0)
    results: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    thresholds: list[dict[str, Any]] = field(default_factory=list)  # where groups have their own
    sets: list[pl.DataFrame] = field(default_factory=list)
    scores: list[pl.DataFrame] = field(default_factory=list)  # of the nodes a page shows
    ranks: dict[str, RankSums] = field(default_factory=dict)  # by score: test against calibration


class Judge:
    """What all methods of one repetition are judged by: the same nodes and re-splits."""

    def __init__(
        self, repetition: Repetition, config: Config, shown: NDArray[np.int64] | None = None
    ) -> None:
        """``shown``: nodes whose scores of all labels are kept, for a page to explain sets by."""
        graph, partition = repetition.graph, repetition.partition
        self.shown, self.repetition, self.config = shown, repetition, config
        roles = repetition.roles
        if config.client_shares is not None:  # before any training
            check_shares(config.client_shares, partition.clients, "client_shares")
        check_robust(config.robust, partition.clients, "clients")
        check_limit(config.max_share, partition.clients, "clients")
        if config.asked_about == "unlabelled" and not (roles == NO_ROLE).any():
            raise UsageError(
                f"asked_about is 'unlabelled', but every node of {graph.name} has a label."
            )
        self.y = graph.y.numpy()
        self.pool = np.flatnonzero(roles >= Role.CALIB)
        self.asked = np.flatnonzero(is_asked(roles))
        self.n_test = int((roles == Role.TEST).sum())
        self.client = partition.client[self.pool]
        rng = np.random.default_rng([repetition.seed, 0xC0F])
        count = config.resplits if self.n_test else 1  # the one split that there is
        masks = resplits(roles, partition.client, count, rng)
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
        notes = [*outcome.calibrated.notes, *self._notes(federation, outcome.calibrated)]
        shares = self.shares(outcome.calibrated.left_out)
        evaluation = Evaluation(notes, self._weights(shares), self.effective(shares))
        probs = federation.gathered([calibration.probs(party, method) for party in parties])
        for name in self.config.scores:
            own = [calibration.scores(party, method, name) for party in parties]
            scores = federation.gathered(own).copy()
            self._judge(name, scores, probs, federation, outcome, evaluation)
            if self.shown is not None:
                ids = np.asarray(self.repetition.graph.node_ids)[self.shown]
                rows = {"probs": probs[self.shown].astype(np.float32), "scores": scores[self.shown]}
                lists = {key: pl.Series(values).arr.to_list() for key, values in rows.items()}
                named = {"method": method, "score": name, "node": pl.Series(ids).cast(pl.String)}
                evaluation.scores.append(pl.DataFrame(named | lists))
        recipe, seconds = outcome.recipe, federation.carried.seconds
        common = {
            "dataset": self.repetition.graph.name,
            "clients": self.repetition.partition.clients,
            "partition": self.config.partition,
            "model": recipe.method.model or self.config.model,
            "accuracy": float(np.mean(probs[self.pool].argmax(axis=1) == self.y[self.pool])),
            "train_seconds": round(sum(seconds.get(p, 0.0) for p in recipe.models.values()), 4),
        }
        evaluation.results = [common | row for row in evaluation.results]
        return evaluation

    def shares(self, left_out: frozenset[int] = frozenset()) -> NDArray[np.float64]:
        """How much each client counts in what is measured: by the nodes asked about, as the promise
        has it; by its test nodes where nobody else is. Clients that were left out do not count."""
        census = Census({one.number: one.counts for one in self.repetition.data})
        tests = census.of("test")
        terms = promise_terms(self.config, census, census.parties, left_out)
        return np.array(terms.shares or [tests[k] for k in sorted(tests)], dtype=np.float64)

    @cached_property
    def apart(self) -> dict[str, float]:
        """The total variation between these shares and those of ``calibration`` nodes, which all
        rules but ``exact`` go by, and of the nodes really ``asked`` about: those without a label
        if there are some, else test nodes."""
        shares, roles = self.shares(), self.repetition.roles
        asked = NO_ROLE if (roles == NO_ROLE).any() else Role.TEST
        found = {}
        for kind, role in (("calibration", Role.CALIB), ("asked", asked)):
            nodes = np.bincount(
                self.repetition.partition.client[roles == role], minlength=len(shares)
            )
            both = shares.any() and nodes.any()
            found[kind] = round(float(total_variation(shares, nodes)), 4) if both else 0.0
        return found

    def effective(self, shares: NDArray[np.float64]) -> tuple[int, int]:
        """How many calibration and test nodes of one pool would leave a split's coverage as much
        spread, at most: the least n_k/p_k and m_k/p_k, for n_k and m_k of them at client k."""
        share = shares / max(shares.sum(), 1e-300)
        roles, clients = self.repetition.roles[self.pool], len(share)
        found = []
        for role in (Role.CALIB, Role.TEST):
            nodes = np.bincount(self.client[roles == role], minlength=clients)
            asked = (share > 0) & (nodes > 0)
            found.append(int(min(nodes[asked] / share[asked], default=0)))
        return found[0], found[1]

    def _notes(self, federation: Federation, found: Calibrated) -> list[str]:
        """What the split says about the promise, before any model; and what the temperature."""
        clients = len(federation.parties)
        roles, client = self.repetition.roles, federation.client
        test = np.bincount(client[roles == Role.TEST], minlength=clients)
        notes = []
        if not (roles == Role.VALID).any():
            notes.append(
                "there are no validation nodes: the last round is kept, T = 1, and RAPS is APS."
            )
        if not self.n_test:
            test = np.bincount(federation.client[self.asked], minlength=clients)
        # Calibrated by client, each has its own promise, however test nodes are spread.
        config, owner = self.config, clients == 1 < self.repetition.partition.clients
        weighed = owner or "theorem1" in config.quantiles or config.calibrate in ("class", "group")
        if weighed and self.apart["calibration"] > SLACK:
            who = "for one owner" if owner else "with --quantiles theorem1 or --calibrate class"
            who += "" if owner or config.calibrate != "group" else " or group"
            notes.append(
                "the nodes asked about are spread over the clients differently from calibration "
                f"nodes (total variation {self.apart['calibration']:.2f}): {who}, the promise is "
                "for clients counted by their calibration nodes, not for the nodes asked about."
            )
        if found.terms.shares is not None:
            unseen = sum(p for p, m in zip(found.terms.shares, test, strict=True) if m == 0)
            if test.any() and unseen:
                notes.append(
                    f"a share of {unseen / sum(found.terms.shares):.2g} of the nodes asked about "
                    "is at clients without test nodes: coverage is measured at the others."
                )
        if np.isclose(found.temperature, MAX_TEMPERATURE):
            notes.append(
                f"the temperature stopped at its bound, {found.temperature:g}: the logits are "
                "far from probabilities; are the features scaled?"
            )
        return notes

    def _weights(self, shares: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """How much each node of the pool counts: a client's test nodes have its share together."""
        tested = self.client[self.repetition.roles[self.pool] == Role.TEST]
        tests = np.bincount(tested, minlength=len(shares))
        if not (shares * tests).any() or np.array_equal(shares, tests):
            return None
        by_client = shares / np.maximum(tests, 1) / shares.sum() * tests.sum()
        return np.asarray(by_client[self.client])

    def _split_coverage(
        self, sets: NDArray[np.bool_], weights: NDArray[np.float64] | None
    ) -> float:
        """Of the test nodes of the split that was calibrated."""
        test = self.repetition.roles[self.asked] == Role.TEST
        held = conformal.covered(sets[test], self.y[self.asked[test]])
        if weights is not None:
            weights = weights[self.repetition.roles[self.pool] == Role.TEST]
        return float(np.average(held, weights=weights)) if len(held) else float("nan")

    def _slab_coverage(self, sets: NDArray[np.bool_], probs: NDArray[np.floating]) -> float | None:
        """In the worst slab of probabilities, of the test nodes of the calibrated split."""
        test = np.flatnonzero(self.repetition.roles[self.asked] == Role.TEST)
        rng = np.random.default_rng([self.repetition.seed, 0x51AB])
        if len(test) > _IN_SLABS:
            test = np.sort(rng.choice(test, _IN_SLABS, replace=False))
        nodes = self.asked[test]
        held = conformal.covered(sets[test], self.y[nodes])
        found = conformal.worst_slab_coverage(probs[nodes], held, rng, directions=_SLABS)
        return _known(found)

    def _judge(
        self,
        name: str,
        scores: NDArray[np.float32],
        probs: NDArray[np.floating],
        federation: Federation,
        outcome: Outcome,
        evaluation: Evaluation,
    ) -> None:
        """Enter the rows of one score."""
        config, y, kind, pool = self.config, self.y, self.config.calibrate, self.pool
        graph, partition = self.repetition.graph, self.repetition.partition
        method, found = str(outcome.recipe), outcome.calibrated
        true = scores[pool, y[pool]]
        calibrates = self.repetition.roles[pool] == Role.CALIB
        if not calibrates.all():
            # The same permutations for every method and score of a seed.
            rng = np.random.default_rng([self.repetition.seed, 0x9E4])
            clients = partition.clients
            ranks = rank_sums(true, self.client, calibrates, rng, clients=clients)
            evaluation.ranks[name] = ranks
        if not config.empty_sets:  # the likeliest label always belongs to the set, whatever q̂ is
            scores[np.arange(len(y)), scores.argmin(axis=1)] = -np.inf
        asked = self.asked
        by_party = np.argsort(federation.client[asked], kind="stable")
        ids = np.asarray(graph.node_ids)[asked]
        client = spelt(partition.names, partition.client[asked])
        # Parties number their groups by name, whatever order the graph has them in.
        names = self.kinds[kind].names if kind == "class" else federation.session.groups
        member = None if kind in ("pooled", "class") else self.kinds[kind].member
        for rule in config.quantiles:
            q_hats = self._over_resplits(rule, true, federation, found.terms)
            for a, alpha in enumerate(config.alphas):
                case = cases_of(config).index((name, rule, alpha))
                thresholds = found.thresholds[case]
                if note := self._note(rule, alpha, thresholds, names):
                    evaluation.notes.append(f"quantile {rule}: {note}")
                judged = self._judged(scores, q_hats[:, a], member, evaluation.weights)
                values = (method, name, rule, alpha, self.repetition.seed)
                key = dict(zip(KEY, values, strict=True))
                sets = np.empty((len(asked), scores.shape[1]), dtype=bool)
                sets[by_party] = np.concatenate([p.sets[method][case] for p in federation.parties])
                row = {
                    **key,
                    "n_calibration": thresholds.pooled.n_calibration,
                    "n_test": self.n_test,
                    "q_hat": thresholds.pooled.q_hat if kind == "pooled" else None,
                    **{rate: getattr(judged, rate) for rate in RATES},
                    SPLIT: self._split_coverage(sets, evaluation.weights),
                    HITS: _known(judged.by_size.coverage[1]),
                    SLAB: self._slab_coverage(sets, probs),
                    "min_client_coverage": judged.groups["client"].worst(),
                    "class_coverage_gap": conformal.class_coverage_gap(
                        judged.groups["class"], alpha
                    ),
                }
                kept = dict if self.n_test else _unmeasured
                evaluation.results.append(kept(row))
                evaluation.groups += [kept({**key, **own}) for own in self._group_rows(judged)]
                evaluation.thresholds += [
                    {**key, "kind": kind, "group": group, **vars(own)}
                    for group, own in zip(names, thresholds.groups, strict=True)
                ]
                evaluation.sets.append(
                    sets_frame(ids, client, y[asked], graph.label_names, sets, **key)
                )

    def _judged(
        self,
        scores: NDArray[np.float32],
        q_hats: NDArray[np.float32],
        member: NDArray[np.int64] | None,
        weights: NDArray[np.float64] | None,
    ) -> conformal.ResplitMetrics:
        """The test nodes' sets over re-splits; without a test node, those of nodes without a label,
        whose sizes need none, and whose coverage is not known."""
        nodes, y, tested = self.pool, self.y[self.pool], ~self.is_calibration
        groups = self.groups
        if not self.n_test:
            nodes, weights = self.asked, None
            y, tested = np.zeros_like(nodes), np.ones((1, len(nodes)), dtype=bool)
            groups = {k: one.member[nodes] for k, one in self.kinds.items() if k != "class"}
        own = None if member is None else member[nodes]
        judged = conformal.evaluate_resplits(
            scores[nodes], y, q_hats, tested, groups, node_group=own, weights=weights
        )
        nobody = conformal.GroupMetrics(*np.empty((3, 0)))
        return replace(judged, groups={"class": nobody, **judged.groups})

    def _over_resplits(
        self,
        rule: str,
        true: NDArray[np.float32],
        federation: Federation,
        terms: conformal.Terms,
    ) -> NDArray[np.float32]:
        """q̂ of every re-split and level, (R, levels), and group where groups have their own."""
        kind, held = self.config.calibrate, (rule, true, federation.client[self.pool])
        asked = self.is_calibration, self.config.alphas
        clients = len(federation.parties)
        terms = terms if rule == "exact" else conformal.NO_TERMS
        if kind == "pooled":
            return conformal.quantile_over_resplits(*held, *asked, clients=clients, **vars(terms))
        groups = len(self.kinds[kind].names)
        return conformal.group_quantiles_over_resplits(
            *held, self.groups[kind], *asked, clients=clients, groups=groups, terms=terms
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
        if note and rule == "average" and not numbered:
            named = ", ".join(f"{k} is {name}" for k, name in enumerate(clients))
            return f"{note} Clients: {named}."
        return note

    def _group_rows(self, judged: conformal.ResplitMetrics) -> list[dict[str, Any]]:
        """All nodes that were judged, then those of every group that has some."""
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


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _unmeasured(row: dict[str, Any]) -> dict[str, Any]:
    """A row about sets whose true labels nobody knows: what was not measured is None."""
    return {
        name: None if name in MEASURED or value != value else value for name, value in row.items()
    }
