"""What a predictor remembers of its calibration, enough for a threshold at any level, and for which
nodes that level is promised."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.conformal.checks import Shares
from fedcover.graphs.inspection import TEST_SLACK

POOLED = "pooled"
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

WEIGHED = "yes, where clients count by their calibration nodes"
SHARED = "yes, for the shares of clients that the run was given"
EVERYTHING = "yes: every label, for less there are too few calibration nodes"


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

    ``clients`` counts all clients, also those without a calibration node. With ``groups``, each of
    them has a threshold of its own (docs/guarantee.md).
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

    def pooled(self, alpha: float, rule: str, shares: Shares | None = None) -> conformal.Threshold:
        """The one threshold of all nodes."""
        shares = shares if rule == "mixture" else None
        return conformal.calibrate(self._by_client(self.scores), alpha, rule, shares=shares)

    def thresholds(
        self, alpha: float, rule: str, shares: Shares | None = None
    ) -> Sequence[conformal.Threshold]:
        """Those of all groups, or the pooled one alone; what was asked before is remembered."""
        asked = alpha, rule, None if shares is None else tuple(shares)
        if asked not in self._found:  # many groups take a while
            if self.groups is None:
                self._found[asked] = (self.pooled(alpha, rule, shares),)
            else:
                scores, member = self._by_client(self.scores), self._by_client(self.groups.member)
                groups = len(self.groups.names)
                own = conformal.group_thresholds(scores, member, alpha, groups=groups, rule=rule)
                self._found[asked] = tuple(own)
        return self._found[asked]

    def _by_client(self, values: NDArray[np.generic]) -> list[NDArray[np.generic]]:
        return [values[self.client == k] for k in range(self.clients)]


def promises(
    kinds: NDArray[np.object_],
    client: NDArray[np.int64],
    member: NDArray[np.int64] | None,
    calibration: Calibration,
    thresholds: Sequence[conformal.Threshold],
    rule: str,
    shares: Sequence[float] | None = None,
) -> list[str]:
    """Whether each node's set keeps its level: by what the node is (``PROMISES``), and for those
    that a promise is possible for, by the rule, by who has too few calibration nodes, and by how
    test nodes are spread over the clients.

    ``member`` says which threshold each node takes; None: it is not the node that decides.
    ``shares`` are the clients' under the rule ``mixture``.
    """
    said = np.array([PROMISES[kind] for kind in kinds], dtype=object)
    tested = kinds == "test"
    possible = tested | (kinds == "unlabelled")
    groups = calibration.groups
    small = np.array([isinstance(t, conformal.GroupThreshold) and t.fell_back for t in thresholds])
    unbounded = np.isinf([threshold.q_hat for threshold in thresholds])
    if not conformal.RULES[rule].guarantee:
        said[possible] = f"no: the rule {rule} has no guarantee"
    elif groups is not None and member is not None:
        pair = calibration.client * len(groups.names) + groups.member
        alone = possible & ~np.isin(client * len(groups.names) + member, pair)
        if groups.kind != "client":  # a client's own promise does not depend on the others
            there = tested & ~alone
            far = _apart(client[there], member[there], calibration, groups)
            said[there & far[member]] = WEIGHED
        said[possible & small[member]] = f"no: its {groups.kind} has too few calibration nodes"
        of = "" if groups.kind == "client" else f" of its {groups.kind}"
        said[alone] = f"no: its client has no calibration node{of}"
        said[tested & unbounded[member]] = EVERYTHING
    elif unbounded.all():
        said[tested] = EVERYTHING
    else:  # are test nodes spread over the clients as the theorem draws them?
        weights = np.bincount(calibration.client, minlength=calibration.clients) + 1
        if rule == "mixture" and shares is not None:
            weights = np.array(shares)
        test = np.bincount(client[tested], minlength=calibration.clients)
        if test.any() and total_variation(test, weights) > TEST_SLACK:
            said[tested] = SHARED if rule == "mixture" else WEIGHED
        if small.any():
            names = ", ".join(np.array(groups.names)[small]) if groups else ""
            said[possible] += f", but not for each class: too few calibration nodes of {names}"
    return [str(one) for one in said]


def _apart(
    client: NDArray[np.int64], member: NDArray[np.int64], calibration: Calibration, groups: Groups
) -> NDArray[np.bool_]:
    """Which groups' test nodes are spread over the clients otherwise than the theorem draws them:
    by calibration nodes. Small groups differ by chance, too."""
    bins = [np.arange(count + 1) for count in (len(groups.names), calibration.clients)]
    held = np.histogram2d(groups.member, calibration.client, bins)[0]
    test = np.histogram2d(member, client, bins)[0]
    weights = held + (held > 0)
    share = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1)
    nodes = 1 / np.maximum(test.sum(axis=1), 1) + 1 / np.maximum(held.sum(axis=1), 1)
    # Half the expected sum of |normal| deviations, twice.
    chance = np.sqrt(2 / np.pi * (share * (1 - share)) * nodes[:, None]).sum(axis=1)
    apart = total_variation(test, weights) > TEST_SLACK + chance
    return np.asarray(test.any(axis=1) & apart)


def total_variation(test: NDArray[np.number], weights: NDArray[np.number]) -> NDArray[np.float64]:
    """Between the two, each taken as shares of its last axis."""
    p, q = (one / np.maximum(one.sum(axis=-1, keepdims=True), 1e-300) for one in (test, weights))
    return np.asarray(np.abs(p - q).sum(axis=-1) / 2)
