"""Federations trained over each carrier, by any plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedcover.algorithm.fedavg import Trained, alone, fedavg
from fedcover.algorithm.requests import Conversation
from fedcover.carriers.loopback import Loopback
from fedcover.carriers.stacked import Stacked
from fedcover.config import Config
from fedcover.graphs.splits import NO_ROLE, Role
from fedcover.models import Weights
from fedcover.party.data import PartyData
from fedcover.party.party import Party
from fedcover.training.plan import Federation, PartyGraph, Plan, Progress
from fedcover.training.reference import Reference

PART, TUNED = "fed/shared", "fed/tuned"


class PlainParty(Party):
    """A party whose only graph and plan are given."""

    def __init__(self, graph: PartyGraph, plan: Plan, seed: int, number: int) -> None:
        roles = np.full(graph.own, NO_ROLE, dtype=np.int8)
        roles[graph.train], roles[graph.valid] = Role.TRAIN, Role.VALID
        own, none = graph.y[: graph.own], np.zeros(0)
        data = PartyData(
            str(number), number, seed, graph.x, graph.edge_index, own, roles, none, none > 0
        )
        super().__init__(data, Config(), plan.classes)
        self._plan, self._graph = plan, graph

    def plan(self, part: str) -> Plan:
        return self._plan

    def graph_of(self, part: str) -> PartyGraph:
        return self._graph


@dataclass(frozen=True)
class Result:
    """One federation's training: the best round's models and logits by party, and its losses."""

    trained: Trained
    weights: list[Weights]
    logits: list[np.ndarray]

    @property
    def losses(self) -> np.ndarray:
        return np.array(self.trained.losses)


def parties_of(federation: Federation, plan: Plan) -> list[PlainParty]:
    return [
        PlainParty(graph, plan, federation.seed, number)
        for number, graph in enumerate(federation.clients)
    ]


def talk_of(plan: Plan, start: Weights | None = None, stride: int = 1) -> Conversation[Trained]:
    if plan.average:
        return fedavg(PART, plan, start)
    return alone(PART if start is None else TUNED, plan, start, stride=stride)


Start = Sequence[Weights] | None


def stacked(
    federations: Sequence[Federation],
    plan: Plan,
    start: Start = None,
    report: Progress | None = None,
    *,
    apart: bool = False,
) -> list[Result]:
    """All federations as one program."""
    repetitions = [Loopback(parties_of(federation, plan)) for federation in federations]
    talks = [talk_of(plan, begin) for begin in start or [None] * len(federations)]
    ended = Stacked(repetitions, alone=apart).carry(talks, report)
    return [result_of(end, one.parties) for end, one in zip(ended, repetitions, strict=True)]


def loopback(
    federations: Sequence[Federation],
    plan: Plan,
    start: Start = None,
    *,
    engine: type | None = None,
    stride: int = 1,
) -> list[Result]:
    """One party after another."""
    results = []
    for federation, begin in zip(federations, start or [None] * len(federations), strict=True):
        parties = parties_of(federation, plan)
        for party in parties:
            party.engine = engine or party.engine
            if begin is not None:  # as the parties have it from the training before
                party.has_model(PART, begin, None)
        ended = Loopback(parties).carry(talk_of(plan, begin, stride))
        results.append(result_of(ended, parties))
    return results


def reference(federations: Sequence[Federation], plan: Plan, start: Start = None) -> list[Result]:
    """One party after another, with PyG's layers and autograd: the oracle."""
    return loopback(federations, plan, start, engine=Reference)


def result_of(trained: Trained, parties: Sequence[Party]) -> Result:
    part = TUNED if TUNED in parties[0].weights else PART
    weights = [party.weights[part] for party in parties]
    return Result(trained, weights, [party.logits(part) for party in parties])


CARRIERS: dict[str, Callable[..., list[Result]]] = {
    "stacked": stacked,
    "loopback": loopback,
    "reference": reference,
}


def largest_difference(ours: Result, theirs: Result) -> float:
    """Between weights and logits."""
    pairs = [
        (a, b)
        for mine, other in zip(ours.weights, theirs.weights, strict=True)
        for a, b in zip(mine, other, strict=True)
    ]
    weights = max(float((a - b).abs().max()) for a, b in pairs)
    logits = (np.abs(a - b).max() for a, b in zip(ours.logits, theirs.logits, strict=True))
    return max(weights, *map(float, logits))
