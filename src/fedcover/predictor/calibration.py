"""What a predictor remembers of its calibration, enough for a threshold at any level, and for which
nodes that level is promised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.conformal.checks import SLACK, total_variation
from fedcover.errors import UsageError

POOLED = "pooled"
DOUBTFUL = 0.01
"""A smaller p-value calls the promise for new nodes doubtful."""
PROMISES = {
    "test": "yes, on average over them",
    "unlabelled": "yes, on average over them, if labels are missing at random at each client",
    "changed": "no: it or its neighbourhood has changed since calibration",
    "new": "no: it is new; --recalibrate can promise for it",
    "train": "no: the model was trained on it",
    "valid": "no: the model was chosen with it",
    "calib": "no: the threshold was chosen with it",
}
"""Whether sets keep their level, by what a node is."""

RECALIBRATED = PROMISES | {
    "test": "yes, on average over test nodes, changed or not",
    "unlabelled": "yes, on average over unlabelled nodes, changed or not, "
    "if labels are missing at random at each client",
    "new": "yes, on average over new nodes, if they join as the old ones did",
}
"""The same after recalibration; a changed node is told what it was before."""

WEIGHED = "yes, on average, but with clients counted by their calibration nodes"
SHARED = "yes, on average, but with clients counted by their shares in the run"
OF_ALL = "yes, on average, but with clients counted by their shares of all nodes asked about"
OWNED = (
    "no: it calibrates as one owner, and these nodes are spread over the clients differently from "
    "its calibration nodes"
)
OF_CLASS = (
    "yes, on average over each class, but with clients counted by their calibration nodes of it"
)
APART = "no: its client is left out of the promise"
EVERYTHING = "yes, trivially: too few calibration nodes, so the set holds every label"


@dataclass(frozen=True)
class Groups:
    """Who has a threshold of its own, a ``client``, ``class`` or ``group``, by name; and of every
    calibration score, for which of them it counts."""

    kind: str
    names: tuple[str, ...]
    member: NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """The calibration nodes' scores in ascending order, and whose they are; not their nodes.

    ``clients`` counts all clients, also those without a calibration node; one owner is one client.
    With ``groups``, each of them has a threshold of its own (docs/guarantee.md).
    """

    scores: NDArray[np.float32]
    client: NDArray[np.int64]
    clients: int
    groups: Groups | None = None
    _found: dict[Any, Sequence[conformal.Threshold]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        scores: NDArray[np.float32],
        client: NDArray[np.int64],
        clients: int,
        groups: Groups | None = None,
    ) -> "Calibration":
        """From scores in any order."""
        order = np.argsort(scores, kind="stable")
        if groups is not None:
            groups = replace(groups, member=groups.member[order])
        return cls(scores[order], client[order], clients, groups)

    @property
    def kind(self) -> str:
        """As ``--calibrate`` has it."""
        return POOLED if self.groups is None else self.groups.kind

    def pooled(
        self, alpha: float, rule: str, terms: conformal.Terms = conformal.NO_TERMS
    ) -> conformal.Threshold:
        """The one threshold of all nodes; the terms are for the rule ``exact``."""
        said = vars(terms) if rule == "exact" else {}
        return conformal.calibrate(self._by_client(self.scores), alpha, rule, **said)

    def thresholds(
        self, alpha: float, rule: str, terms: conformal.Terms = conformal.NO_TERMS
    ) -> Sequence[conformal.Threshold]:
        """Those of all groups, or the pooled one alone; what was asked before is remembered."""
        asked = alpha, rule, terms
        if asked not in self._found:  # many groups take a while
            if self.groups is None:
                self._found[asked] = (self.pooled(alpha, rule, terms),)
            else:
                scores, member = self._by_client(self.scores), self._by_client(self.groups.member)
                groups, terms = (
                    len(self.groups.names),
                    terms if rule == "exact" else conformal.NO_TERMS,
                )
                own = conformal.group_thresholds(
                    scores, member, alpha, groups=groups, rule=rule, terms=terms
                )
                self._found[asked] = tuple(own)
        return self._found[asked]

    def p_values(
        self,
        scores: NDArray[np.float32],
        member: NDArray[np.int64] | None,
        rule: str,
        terms: conformal.Terms = conformal.NO_TERMS,
    ) -> NDArray[np.float64]:
        """Of every node and label: the sets of :meth:`thresholds` are {p > alpha} at any level.

        ``member`` says which group each node is in, as for :func:`promises`.
        """
        if rule == "exact" and terms.confidence is not None:
            raise UsageError(
                "p-values do not exist for the rule 'exact' with confidence; use a run without it."
            )
        held = self._by_client(self.scores)
        shares = terms.shares if rule == "exact" else None
        weights = conformal.rule_weights(rule, [len(own) for own in held], shares)
        pooled = conformal.p_values(scores, held, weights)
        if self.groups is None:
            return pooled
        found, groups = pooled.copy(), self._by_client(self.groups.member)
        for g in range(len(self.groups.names)):
            own = [values[of == g] for values, of in zip(held, groups, strict=True)]
            there = (slice(None), g) if member is None else np.flatnonzero(member == g)
            found[there] = conformal.group_p_values(scores[there], own, rule, pooled[there])
        return found

    def _by_client(self, values: NDArray[np.generic]) -> list[NDArray[np.generic]]:
        return [values[self.client == k] for k in range(self.clients)]


def promising(p_value: float | None) -> Mapping[str, str]:
    """The promises after recalibration, by how likely new nodes are to differ by chance alone."""
    if p_value is None or p_value >= DOUBTFUL:
        return RECALIBRATED
    doubt = f"doubtful: new nodes differ from the calibration nodes (p = {p_value:.3g})"
    return {**RECALIBRATED, "new": doubt}


def promises(
    kinds: NDArray[np.object_],
    client: NDArray[np.int64],
    member: NDArray[np.int64] | None,
    calibration: Calibration,
    thresholds: Sequence[conformal.Threshold],
    rule: str,
    terms: conformal.Terms = conformal.NO_TERMS,
    words: Mapping[str, str] = PROMISES,
    held: NDArray[np.int64] | None = None,
) -> list[str]:
    """Whether each node's set keeps its level: by what the node is (``words``), and for those
    that a promise is possible for, by the rule, by who has too few calibration nodes, and by how
    nodes of its kind are spread over the clients.

    ``member`` says which threshold each node takes; None: it is not the node that decides.
    ``terms`` are those of the rule ``exact``. ``held``: where one owner of all nodes has
    calibrated, the calibration nodes of every client.
    """
    whose = client
    if held is not None:
        client = np.zeros_like(client)
    said = np.array([words[kind] for kind in kinds], dtype=object)
    hoped = [kind for kind in words if words[kind].startswith("yes")]
    possible = np.isin(kinds, hoped)
    tested = possible & (kinds != "unlabelled")
    groups = calibration.groups
    small = np.array([isinstance(t, conformal.GroupThreshold) and t.fell_back for t in thresholds])
    unbounded = np.isinf([threshold.q_hat for threshold in thresholds])
    if not conformal.RULES[rule].guarantee:
        said[possible] = f"no: the rule {rule} has no guarantee"
    elif groups is not None and member is not None:
        pair = calibration.client * len(groups.names) + groups.member
        alone = possible & ~np.isin(client * len(groups.names) + member, pair)
        if groups.kind != "client":  # a client's own promise does not depend on the others
            for kind in hoped:
                there = tested & ~alone & (kinds == kind)
                far = _apart(client[there], member[there], calibration, groups)
                said[there & far[member]] = WEIGHED + _condition(words[kind])
        said[possible & small[member]] = f"no: its {groups.kind} has too few calibration nodes"
        of = "" if groups.kind == "client" else f" of its {groups.kind}"
        said[alone] = f"no: its client has no calibration node{of}"
        said[tested & unbounded[member]] = EVERYTHING
    elif unbounded.all():
        said[tested] = EVERYTHING
    else:  # are nodes spread over the clients as the theorem draws them?
        weights = np.bincount(calibration.client, minlength=calibration.clients)
        if groups is not None:  # by class, clients count by their calibration nodes
            terms = replace(terms, shares=None)
        if rule == "theorem1":
            weights = weights + 1
        elif terms.shares is not None:
            weights = np.array(terms.shares)
        for kind in hoped:
            asked = np.bincount(client[kinds == kind], minlength=calibration.clients)
            if asked.any() and total_variation(asked, weights) > SLACK:
                shared = SHARED if words is PROMISES else OF_ALL
                if groups is not None:
                    shared = OF_CLASS
                counted = shared if groups is not None or terms.shares is not None else WEIGHED
                said[kinds == kind] = counted + _condition(words[kind])
        said[possible & (weights == 0)[client]] = APART
        if small.any():
            names = ", ".join(np.array(groups.names)[small]) if groups else ""
            said[possible] += f", but not for each class: too few calibration nodes of {names}"
    if held is not None and conformal.RULES[rule].guarantee:
        for kind in hoped:
            asked = np.bincount(whose[kinds == kind], minlength=len(held))
            if asked.any() and total_variation(asked, held) > SLACK:
                said[kinds == kind] = OWNED
    if rule == "exact" and terms.confidence is not None:
        sure = f"yes, with a confidence of {terms.confidence:g} over calibration sets, on average"
        said = np.array([one.replace("yes, on average", sure) for one in said], dtype=object)
    return [str(one) for one in said]


def _condition(word: str) -> str:
    _, condition, rest = word.partition(", if ")
    return condition + rest


def _apart(
    client: NDArray[np.int64], member: NDArray[np.int64], calibration: Calibration, groups: Groups
) -> NDArray[np.bool_]:
    """Which groups' test nodes are spread over the clients otherwise than the theorem draws them:
    by calibration nodes. Small groups differ by chance, too."""
    bins = [np.arange(count + 1) for count in (len(groups.names), calibration.clients)]
    held = np.histogram2d(groups.member, calibration.client, bins)[0]
    test = np.histogram2d(member, client, bins)[0]
    share = held / np.maximum(held.sum(axis=1, keepdims=True), 1)
    nodes = 1 / np.maximum(test.sum(axis=1), 1) + 1 / np.maximum(held.sum(axis=1), 1)
    # Half the expected sum of |normal| deviations, twice.
    chance = np.sqrt(2 / np.pi * (share * (1 - share)) * nodes[:, None]).sum(axis=1)
    apart = total_variation(test, held) > SLACK + chance
    return np.asarray(test.any(axis=1) & apart)
