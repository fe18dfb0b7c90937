"""One party after another in this process, with real messages: the oracle for the others."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedcover.algorithm.requests import Census, Conversation, Finish, Notice, Question, Result, Tell
from fedcover.carriers.messages import FINISH, lead, queries_of, result_of, told_by, verb_of
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
        for party in self.parties:
            match request:
                case Tell(part, arrays):
                    self.ledger.record(part, "", party.number, 0, "down", arrays)
                    party.tell(part, arrays)
                case Finish(part):
                    arrays = told_by(request)
                    self.ledger.record(part, FINISH, party.number, 0, "down", arrays)
                    local_training.finish(party, part, arrays)

    def ask(self, request: Question) -> Any:
        """What the parties' answers to a question come to."""
        place = (request.part, verb_of(request), request.round)
        queries = queries_of(request, self.census)
        asked = [party for party in self.parties if party.number in queries]
        replies = {one.number: one.answer(*place, queries[one.number]) for one in asked}
        self.record(request, queries, replies)
        return result_of(request, replies, self.census, seed=self.parties[0].data.seed)

    def record(
        self, request: Question, queries: Mapping[int, Message], replies: Mapping[int, Message]
    ) -> None:
        """Write down what was sent both ways."""
        for number, reply in replies.items():
            place = (request.part, verb_of(request), number, request.round)
            self.ledger.record(*place, "down", queries[number])
            self.ledger.record(*place, "up", reply)
