"""Local training as a party answers it: weights come in, its term of the sum goes out.

A party remembers its optimiser between rounds, and, of models that stay with it, the best so far.
Its own models depend on nothing that others send: what it has missed, it trains by itself.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message
from fedcover.fixed_point import Integers
from fedcover.models.gnn import Weights, arrays_of, weights_of
from fedcover.training.plan import Federation
from fedcover.training.program import Program

if TYPE_CHECKING:
    from fedcover.party.party import Party
    from fedcover.training.reference import Reference


@dataclass
class LocalTraining:
    """One model under way at one party."""

    program: "Program | Reference"
    round: int = 0  # how many rounds the party's own model has been trained
    states: dict[int, Weights] = field(default_factory=dict)  # its own model after so many rounds

    def state(self) -> dict[str, NDArray[Any]]:
        """What a process that was killed needs to go on; the oracle is never killed."""
        assert isinstance(self.program, Program)
        found = {"round": np.array(self.round), **self.program.optimiser.state()}
        for round_, weights in self.states.items():
            found |= arrays_of(weights, f"{round_}.")
        return found

    def restore(self, state: Message) -> None:
        """Go on where :meth:`state` was taken."""
        assert isinstance(self.program, Program)
        self.round = int(state["round"])
        self.program.optimiser.restore(state)
        rounds = {int(k.partition(".")[0]) for k in state if k[0].isdigit()}
        self.states = {r: found for r in rounds if (found := weights_of(state, f"{r}."))}
        if self.states:
            self.program.restore_own(self.states[self.round])

    def train_until(self, rounds: int) -> list[dict[str, Integers]]:
        """Train the party's own model up to so many rounds; the loss after each of them."""
        losses = []
        while self.round < rounds:
            self.program.fit(self.round)
            self.round += 1
            losses.append(self.loss())
            self.states[self.round] = self.program.own_weights(kept=False)[0][0]
        return losses

    def loss(self) -> dict[str, Integers]:
        """Over the party's validation nodes, and their number."""
        total, count = self.program.losses()
        return {"loss": total, "count": count.astype(np.int64)}


def train(party: "Party", part: str, round_: int, query: Message) -> Message:
    """One round of a model that is averaged: the loss of what came, and the change by training."""
    training = _under_way(party, part, int(query["total"]))
    if (given := weights_of(query)) is not None:
        training.program.receive([given])
    reply = training.loss()
    if query["fit"]:
        training.program.fit(round_)
        reply |= training.program.change()
    return reply


def train_alone(party: "Party", part: str, round_: int, query: Message) -> Message:
    """Rounds of a model of the party's own, and the loss after each; or that of the start."""
    keep, rounds = int(query["keep"]), int(query["rounds"]) if query["fit"] else 0
    training = _own(party, part, round_, keep)
    training.train_until(round_)
    training.states = {r: w for r, w in training.states.items() if r in (keep, round_)}
    losses = training.train_until(round_ + rounds) or [training.loss()]
    return {name: np.concatenate([one[name] for one in losses]) for name in losses[0]}


def finish(party: "Party", part: str, arrays: Message) -> None:
    """The training is over: keep the model that the coordinator names, if it names one."""
    given = weights_of(arrays)
    if given is None and "keep" in arrays and part not in party.weights:
        keep = int(arrays["keep"])
        training = _own(party, part, party.plan(part).rounds, keep)
        training.train_until(keep)
        given = training.states[keep]
    if given is not None:
        party.has_model(part, given, None)
    party.training.pop(part, None)


def _own(party: "Party", part: str, round_: int, keep: int) -> LocalTraining:
    """The training of the party's own model, from which both rounds can be reached.

    It begins anew where the party has missed a question, and kept the wrong state.
    """
    training = _under_way(party, part)
    if training.round > round_ or (0 <= keep <= training.round and keep not in training.states):
        training = _under_way(party, part, anew=True)
    return training


def _under_way(party: "Party", part: str, total: int = 1, *, anew: bool = False) -> LocalTraining:
    if anew or part not in party.training:
        plan, (name, _, step) = party.plan(part), part.rpartition("/")
        federation = Federation([party.graph_of(part)], party.data.seed, first=party.number)
        start = [party.weights[f"{name}/shared"]] if step == "tuned" else None
        training = LocalTraining(party.engine([federation], plan, start, total))
        state = None if anew else party.recall(part)
        if state is not None:
            training.restore(state)
        elif not plan.average:
            training.states[0] = training.program.own_weights(kept=False)[0][0]
        party.training[part] = training
    found: LocalTraining = party.training[part]
    return found
