"""One party after another in this process, with real messages: the oracle for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedcover.algorithm.requests import (
    Ask,
    Census,
    Conversation,
    Finish,
    Notice,
    Question,
    Result,
    Tell,
)
from fedcover.carriers.messages import FINISH, lead, query_of, result_of, told_by, verb_of
from fedcover.conformal.protocol import Message
from fedcover.ledger import Ledger
from fedcover.party import local_training
from fedcover.party.party import Party


class Loopback:
    """All parties of one repetition, and its account."""

    def __init__(self, parties: Sequence[Party]) -> None:
        self.parties = parties
        self.ledger = Ledger()
        self.census = Census({party.number: party.data.counts for party in parties})
        self.seconds: dict[str, float] = {}  # of training, by part, where a carrier measures it

    def carry(self, conversation: Conversation[Result]) -> Result:
        """Lead the conversation to its end."""
        return lead(
            {0: conversation},
            lambda _seed, request: self.at_once(request),
            lambda asked: [self.ask(request) for _, request in asked],
        )[0]

    def at_once(self, request: Notice) -> None:
        """What gets no answer; nothing is remembered, so that there is nothing to recall."""
        match request:
            case Tell():
                self._told(request.part, "", request.arrays, Party.tell)
            case Finish():
                self._told(request.part, FINISH, told_by(request), local_training.finish)

    def _told(
        self, part: str, verb: str, arrays: Message, learn: Callable[[Party, str, Message], None]
    ) -> None:
        for party in self.parties:
            self.ledger.record(part, verb, party.number, 0, "down", arrays)
            learn(party, part, arrays)

    def ask(self, request: Question) -> Any:
        """What the parties' answers to a question come to."""
        queries, place = self.queries(request), (request.part, verb_of(request), request.round)
        replies = {
            party.number: party.answer(*place, queries[party.number])
            for party in self.parties
            if party.number in queries
        }
        self.record(request, queries, replies)
        return result_of(request, replies, self.census, seed=self.parties[0].data.seed)

    def queries(self, request: Question) -> dict[int, Message]:
        """What each party that is asked is sent."""
        numbers = [party.number for party in self.parties]
        if isinstance(request, Ask) and request.to is not None:
            numbers = [number for number in numbers if number in request.to]
        return {number: query_of(request, number, self.census) for number in numbers}

    def record(
        self,
        request: Question,
        queries: Mapping[int, Message],
        replies: Mapping[int, Message],
    ) -> None:
        """Write down what was sent both ways."""
        for number, reply in replies.items():
            place = (request.part, verb_of(request), number, request.round)
            self.ledger.record(*place, "down", queries[number])
            self.ledger.record(*place, "up", reply)
