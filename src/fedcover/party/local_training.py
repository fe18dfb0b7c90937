"""Local training as a party answers it: weights come in, its term of the sum goes out.

A party remembers its optimiser between rounds, and, of models that stay with it, the best so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedcover.conformal.protocol import Message
from fedcover.errors import UsageError
from fedcover.fixed_point import Integers
from fedcover.models import Weights
from fedcover.training.plan import Federation
from fedcover.training.program import Program
from fedcover.training.weights import weights_of

if TYPE_CHECKING:
    from fedcover.party.party import Party
    from fedcover.training.reference import Reference


@dataclass
class LocalTraining:
    """One model under way at one party."""

    program: Program | Reference
    states: list[Weights] = field(default_factory=list)  # behind the last losses
    best: Weights | None = None  # of the party's own models


def train(party: Party, part: str, round_: int, query: Message) -> Message:
    """One round of a model that is averaged: the loss of what came, and the change by training."""
    training = _under_way(party, part, query)
    given = weights_of(query)
    if given is not None:
        training.program.receive([given])
    reply = _loss(training.program)
    if query["fit"]:
        training.program.fit(round_)
        reply |= training.program.change()
    return reply


def train_alone(party: Party, part: str, round_: int, query: Message) -> Message:
    """Rounds of a model of the party's own, and the loss after each; or that of the start."""
    training = _under_way(party, part, query)
    _keep(training, int(query["keep"]))
    program, losses, training.states = training.program, [], []
    rounds = int(query["rounds"]) if query["fit"] else 0
    if not rounds:
        losses.append(_loss(program))
        training.states.append(program.own_weights(kept=False)[0][0])
    for further in range(rounds):
        program.fit(round_ + further)
        losses.append(_loss(program))
        training.states.append(program.own_weights(kept=False)[0][0])
    return {name: np.concatenate([one[name] for one in losses]) for name in losses[0]}


def finish(party: Party, part: str, arrays: Message) -> None:
    """The training is over: keep the model that the coordinator names, if it names one."""
    training = party.training.pop(part, None)
    given = weights_of(arrays)
    if given is None and "keep" not in arrays:
        return
    if given is None:
        if training is None:
            raise UsageError(f"{part} has not been trained here.")
        _keep(training, int(arrays["keep"]))
        assert training.best is not None
        given = training.best
    party.has_model(part, given, None)


def _under_way(party: Party, part: str, query: Message) -> LocalTraining:
    if part not in party.training:
        plan, graph = party.plan(part), party.graph_of(part)
        federation = Federation([graph], party.data.seed, first=party.number)
        start = weights_of(query)
        program = party.engine(
            [federation], plan, None if start is None else [start], int(query["total"])
        )
        party.training[part] = LocalTraining(program)
    return party.training[part]


def _keep(training: LocalTraining, place: int) -> None:
    if place >= 0:
        training.best = training.states[place]


def _loss(program: Program | Reference) -> dict[str, Integers]:
    total, count = program.losses()
    return {"loss": total, "count": count.astype(np.int64)}
