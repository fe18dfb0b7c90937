"""One party after another in this process, with real messages: the oracle for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedcover.algorithm.calibrate import Census
from fedcover.algorithm.requests import (
    Ask,
    Conversation,
    Finish,
    Keep,
    Parallel,
    Recall,
    Result,
    Tell,
    Train,
)
from fedcover.carriers.messages import query_of, result_of, told_by, verb_of
from fedcover.ledger import Ledger
from fedcover.models import Weights, initial_weights
from fedcover.party import local_training
from fedcover.party.party import Party
from fedcover.training.plan import Plan, initialiser


class Loopback:
    """All parties of one repetition."""

    def __init__(
        self, parties: Sequence[Party], ledger: Ledger | None = None, average: str = "mean"
    ) -> None:
        self._parties = {party.number: party for party in parties}
        self.ledger = Ledger() if ledger is None else ledger
        self.census = Census({k: party.data.counts for k, party in self._parties.items()})
        self._average = average

    def carry(self, conversation: Conversation[Result]) -> Result:
        """Lead the conversation to its end."""
        sent: Any = None
        try:
            while True:
                sent = self._answer(conversation.send(sent))
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _answer(self, request: Any) -> Any:
        match request:
            case Parallel():
                return {name: self.carry(talk) for name, talk in request.talks.items()}
            case Recall() | Keep():
                return None
            case Tell():
                for number, party in self._parties.items():
                    arrays = {**request.arrays, **request.own.get(number, {})}
                    self.ledger.record(request.part, "", number, 0, "down", arrays)
                    party.tell(request.part, arrays)
                return None
            case Finish():
                told = told_by(request)
                for number, party in self._parties.items():
                    self.ledger.record(request.part, "finish", number, 0, "down", told)
                    local_training.finish(party, request.part, told)
                return None
            case Ask() | Train():
                return self._ask(request)
        raise TypeError(f"{request!r} is no request")

    def _ask(self, request: Ask | Train) -> Any:
        verb, replies = verb_of(request), {}
        asked = getattr(request, "to", None)
        for number, party in self._parties.items():
            if asked is not None and number not in asked:
                continue
            query = query_of(request, number, self.census)
            reply = party.answer(request.part, verb, request.round, query)
            self.ledger.record(request.part, verb, number, request.round, "down", query)
            self.ledger.record(request.part, verb, number, request.round, "up", reply)
            replies[number] = reply
        return result_of(request, replies, self.census, self._average, self._initial(request))

    def _initial(self, request: Ask | Train) -> Weights | None:
        if not isinstance(request, Train) or request.model is not None:
            return None
        party = next(iter(self._parties.values()))
        features = party.graph_of(request.part).x.shape[1]
        return drawn_weights(request.plan, features, party.data.seed)


def drawn_weights(plan: Plan, features: int, seed: int) -> Weights:
    """The weights that a training begins with: they follow from the seed, and are not sent."""
    size = (features, plan.hidden, plan.classes)
    return initial_weights(plan.model, *size, initialiser(seed)).to(plan.dtype)
