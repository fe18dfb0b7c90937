"""How calibration nodes become thresholds: one for all, or one for each client, class or group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.experiment.methods import Repetition
from fedcover.federation import Engine
from fedcover.federation.ledger import Ledger
from fedcover.graphs.splits import Role

_NAMED = 8  # groups that a note lists


@dataclass(frozen=True)
class Calibrated:
    """The thresholds of one rule and level on the primary split.

    ``q_hat`` is None where there is one for each group. ``announced`` is what a client must be told
    to make its sets.
    """

    n_calibration: int
    q_hat: float | None
    announced: NDArray[np.float32]
    rows: list[dict[str, Any]]  # of thresholds.csv
    note: str


class Pooled:
    """One threshold for all nodes (Theorems 1 and 2)."""

    def __init__(self, repetition: Repetition, engine: Engine) -> None:
        self._repetition, self._engine = repetition, engine

    def over_resplits(
        self,
        rule: str,
        true: NDArray[np.float32],
        pool: NDArray[np.int64],
        is_calibration: NDArray[np.bool_],
        alphas: Sequence[float],
        shares: Sequence[float] | None,
    ) -> NDArray[np.float32]:
        """q̂ of every re-split and level, (R, levels); ``true`` are all nodes' scores."""
        partition = self._repetition.partition
        return conformal.quantile_over_resplits(
            rule,
            true[pool],
            partition.client[pool],
            is_calibration,
            alphas,
            clients=partition.clients,
            shares=shares,
        )

    def thresholds(
        self,
        rule: str,
        true: NDArray[np.float32],
        alpha: float,
        shares: Sequence[float] | None,
        ledger: Ledger,
    ) -> Calibrated:
        """The talk on the primary split."""
        found = self._engine.ask(
            conformal.server_of(rule, alpha, shares),
            conformal.RULES[rule].client,
            self._repetition.by_client(Role.CALIB, true),
            kind="quantile",
            on_message=ledger.listener(),
        )
        announced = np.array([found.q_hat], dtype=np.float32)
        return Calibrated(found.n_calibration, found.q_hat, announced, [], found.note)

    def node_group(self, _nodes: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Which threshold each node takes; None: it is not the node that decides."""
        return None

    def sets(
        self, scores: NDArray[np.float32], _nodes: NDArray[np.int64], found: Calibrated
    ) -> NDArray[np.bool_]:
        """The sets of these nodes, whose scores these are."""
        return conformal.prediction_sets(scores, found.announced[0])


class ByGroup:
    """A threshold for each client, class or group (docs/guarantee.md); else as :class:`Pooled`."""

    def __init__(self, kind: str, repetition: Repetition, engine: Engine) -> None:
        self._repetition, self._engine, self._kind = repetition, engine, kind
        self._member, self._names = membership(kind, repetition)

    def over_resplits(
        self,
        rule: str,
        true: NDArray[np.float32],
        pool: NDArray[np.int64],
        is_calibration: NDArray[np.bool_],
        alphas: Sequence[float],
        _shares: Sequence[float] | None,
    ) -> NDArray[np.float32]:
        """q̂ of every re-split, level and group: (R, levels, groups)."""
        partition = self._repetition.partition
        return conformal.group_quantiles_over_resplits(
            rule,
            true[pool],
            partition.client[pool],
            self._member[pool],
            is_calibration,
            alphas,
            clients=partition.clients,
            groups=len(self._names),
        )

    def thresholds(
        self,
        rule: str,
        true: NDArray[np.float32],
        alpha: float,
        _shares: Sequence[float] | None,
        ledger: Ledger,
    ) -> Calibrated:
        """The talks of all groups on the primary split."""
        scores = self._repetition.by_client(Role.CALIB, true)
        groups = self._repetition.by_client(Role.CALIB, self._member)
        pooled, found = self._engine.ask(
            conformal.group_server(alpha, len(self._names), rule),
            conformal.group_client,
            list(zip(scores, groups, strict=True)),
            kind="quantile",
            on_message=ledger.listener(),
        )
        rows = [
            {
                "kind": self._kind,
                "group": name,
                "n_calibration": own.n_calibration,
                "clients": own.clients,
                "q_hat": own.q_hat,
                "fell_back": own.fell_back,
            }
            for name, own in zip(self._names, found, strict=True)
        ]
        announced = np.array([own.q_hat for own in found], dtype=np.float32)
        note = self._note(alpha, found, pooled)
        return Calibrated(pooled.n_calibration, None, announced, rows, note)

    def node_group(self, nodes: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Which threshold each node takes; None: it is not the node that decides."""
        return None if self._kind == "class" else self._member[nodes]

    def sets(
        self, scores: NDArray[np.float32], nodes: NDArray[np.int64], found: Calibrated
    ) -> NDArray[np.bool_]:
        """The sets of these nodes, whose scores these are."""
        if self._kind == "class":
            return conformal.prediction_sets(scores, found.announced, per="label")
        own = found.announced[self._member[nodes]]
        return conformal.prediction_sets(scores, own, per="node")

    def _note(
        self,
        alpha: float,
        found: Sequence[conformal.GroupThreshold],
        pooled: conformal.Threshold,
    ) -> str:
        small = [name for name, own in zip(self._names, found, strict=True) if own.fell_back]
        if not small:
            return ""
        listed = ", ".join(small[:_NAMED])
        more = f" and {len(small) - _NAMED} more" if len(small) > _NAMED else ""
        return (
            f"alpha = {alpha:g} asks for more calibration nodes than {len(small)} of "
            f"{len(self._names)} have by {self._kind} ({listed}{more}): they take the pooled "
            "threshold or their largest score, and this level is not promised for each of them. "
            f"{pooled.note}"
        ).rstrip()


def membership(kind: str, repetition: Repetition) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Which ``client``, ``class`` or ``group`` every node is of, and what they are called."""
    graph, partition = repetition.graph, repetition.partition
    if kind == "client":
        return partition.client, partition.names
    if kind == "class":
        return graph.y.numpy(), tuple(graph.label_names)
    return graph.group.numpy(), tuple(graph.group_names)


def calibration_of(kind: str, repetition: Repetition, engine: Engine) -> Pooled | ByGroup:
    """How this repetition is calibrated: ``pooled``, or by ``client``, ``class`` or ``group``."""
    if kind == "pooled":
        return Pooled(repetition, engine)
    return ByGroup(kind, repetition, engine)
