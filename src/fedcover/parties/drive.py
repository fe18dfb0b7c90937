"""Carries a conversation to the sites: asks, waits, refuses, and goes on with who is there."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message, message_bytes
from fedcover.errors import DataError
from fedcover.graphs.schema import Schema
from fedcover.parties import proof
from fedcover.parties.checkpoint import Checkpoint
from fedcover.parties.conduct import COUNTED, Conductor, MethodOutcome, Roster
from fedcover.parties.job import Job, settings_text
from fedcover.parties.journal import Journal
from fedcover.parties.messages import (
    Conclusion,
    Conversation,
    Order,
    Replies,
    Reply,
    Request,
    text,
    words,
)

OnRound = Callable[[str, int, int, int], None]
"""Called as ``on_round(phase, round, answered, sites)``."""


class Transport(Protocol):
    """A way to reach sites. Sites are known by their names, which they tell when greeted."""

    def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:
        """Send the order to everyone, until so many sites have replied or the time is over."""
        ...

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        """Send each site its order; replies as they arrive, also late ones to earlier orders."""
        ...


@dataclass
class Record:
    """What happened on the way, for the run's notes."""

    answered: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)  # by phase and round
    refused: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # by phase


class Driver:
    """One job over one transport."""

    def __init__(
        self,
        job: Job,
        schema: Schema,
        transport: Transport,
        checkpoint: Checkpoint | None = None,
        journal: Journal | None = None,
        on_round: OnRound | None = None,
    ) -> None:
        self._job, self._schema, self._transport = job, schema, transport
        self._checkpoint = checkpoint or Checkpoint()
        self._journal = journal or Journal()
        self._on_round = on_round
        self._id = ""
        self._conclusions: dict[str, Message] = {}
        self._delivered: dict[int, set[str]] = {}
        self._away: set[int] = set()
        self.record = Record()
        self.roster = Roster((), {})

    @property
    def job_id(self) -> str:
        """What the sites call this job."""
        return self._id

    def run(self) -> dict[str, MethodOutcome]:
        """Greet the sites, and lead the whole conversation with them."""
        self._greet()
        conductor = Conductor(self._job, self._schema, self.roster, self._checkpoint)
        return self._carry(conductor.conversation())

    def _greet(self) -> None:
        """Who takes part: the sites that prove the schema. Numbers follow from their names."""
        begun = self._checkpoint.read("job")
        nonce = np.frombuffer(secrets.token_bytes(16), dtype=np.uint8)
        settings = text(settings_text(self._job.config))
        if begun is not None and not np.array_equal(begun["settings"], settings):
            raise DataError(
                "the checkpoint is of a job with other settings; choose another folder, or delete "
                "it to begin anew."
            )
        self._id = words(begun["id"]) if begun is not None else secrets.token_hex(6)
        query = {"settings": settings, "schema": text(self._schema.to_json()), "nonce": nonce}
        order = Order(self._id, "", "hello", 0, 0, query)
        wanted = self._job.sites if begun is None else len(json.loads(words(begun["names"])))
        replies = self._transport.greet(order, wanted, self._job.join)
        counts = {}
        for name, reply in replies.items():
            self._journal.record(self._id, name, "down", order.place, query)
            self._journal.record(self._id, name, "up", order.place, reply.content)
            problem = reply.problem or self._unfit(name, reply.content, nonce)
            if problem:
                raise DataError(f"site {name} cannot take part: {problem}")
            counts[name] = dict(zip(COUNTED, reply.content["counts"].tolist(), strict=True))
        names = sorted(counts) if begun is None else json.loads(words(begun["names"]))
        missing = [name for name in names if name not in counts]
        if len(counts) < wanted or missing:
            raise DataError(
                f"{len(counts)} of {wanted} sites came within {self._job.join:g} s "
                f"({', '.join(sorted(counts)) or 'none'}); is every SuperNode running?"
            )
        self.roster = Roster(tuple(names), {k: counts[name] for k, name in enumerate(names)})
        self._delivered = {k: set() for k in self.roster.numbers}
        self._checkpoint.write(
            "job",
            {"id": text(self._id), "settings": settings, "names": text(json.dumps(names))},
        )

    def _unfit(self, name: str, reply: Message, nonce: NDArray[np.uint8]) -> str:
        if set(reply) != {"proof", "counts"}:
            return "it does not say hello as it should."
        if not np.array_equal(reply["proof"], proof.of(self._schema, nonce, name)):
            return "its schema is not the agreed one."
        counts = reply["counts"]
        if counts.shape != (len(COUNTED),) or counts.dtype.kind != "i" or (counts < 0).any():
            return "its numbers of nodes are not counts."
        if counts[0] != counts[1:].sum():
            return f"it has {counts[0]} nodes, but roles for {counts[1:].sum()}."
        return ""

    def _carry(
        self, conversation: Conversation[dict[str, MethodOutcome]]
    ) -> dict[str, MethodOutcome]:
        step = next(conversation)
        while True:
            replies: Replies = {}
            if isinstance(step, Conclusion):
                self._conclusions[step.name] = step.content
            else:
                replies = self._ask(step)
            try:
                step = conversation.send(replies)
            except StopIteration as stop:
                outcomes: dict[str, MethodOutcome] = stop.value
                return outcomes

    def _ask(self, request: Request) -> Replies:
        """One round: whoever answers well in time takes part in it."""
        began = time.monotonic()
        asked = self.roster.numbers if request.to is None else request.to
        orders = {self.roster.names[site]: self._order(request, site) for site in sorted(asked)}
        replies: Replies = {}
        refused: set[int] = set()
        for name, order in orders.items():
            self._journal.record(self._id, name, "down", order.place, _all_of(order))
        for name, reply in self._transport.exchange(orders, self._job.timeout):
            site = self.roster.names.index(name)
            if reply.place != request_place(request) or reply.job != self._id:
                self._late(site, name, reply)
                continue
            self._journal.record(self._id, name, "up", reply.place, reply.content)
            problem = reply.problem or _judge(request, site, reply.content)
            if problem:
                refused.add(site)
                self.record.refused.append(
                    f"{request.phase}, round {request.round}: the reply of {name} was refused: "
                    f"{problem.rstrip('.')}."
                )
            else:
                replies[site] = reply.content
                self._delivered[site] |= orders[name].conclusions.keys()
                self._away.discard(site)
            waiting = asked - self._away - replies.keys() - refused
            if not waiting and len(replies) >= self._job.least:
                break
        self._away |= asked - replies.keys() - refused
        self._count(request, replies, began)
        if len(replies) < self._job.least:
            raise DataError(self._too_few(request, asked, replies))
        return dict(sorted(replies.items()))

    def _order(self, request: Request, site: int) -> Order:
        fresh = {k: c for k, c in self._conclusions.items() if k not in self._delivered[site]}
        return Order(
            self._id, request.phase, request.verb, request.round, site, request.query, fresh
        )

    def _late(self, site: int, name: str, reply: Reply) -> None:
        """A reply to an earlier order: its site is there again, but what it says is past."""
        self._away.discard(site)
        self.record.refused.append(
            f"{reply.phase}, round {reply.round}: the reply of {name} came after the round was "
            "over, and was not used."
        )

    def _count(self, request: Request, replies: Replies, began: float) -> None:
        self.record.answered.setdefault(request.phase, []).append(tuple(sorted(replies)))
        spent = self.record.seconds.get(request.phase, 0.0)
        self.record.seconds[request.phase] = spent + time.monotonic() - began
        if self._on_round is not None:
            self._on_round(request.phase, request.round, len(replies), len(self.roster.names))

    def _too_few(self, request: Request, asked: frozenset[int], replies: Replies) -> str:
        there = ", ".join(self.roster.names[site] for site in sorted(replies)) or "none"
        why = f" {self.record.refused[-1]}" if self.record.refused else ""
        return (
            f"{request.phase}, round {request.round}: {len(replies)} of {len(asked)} sites "
            f"answered within {self._job.timeout:g} s ({there}), but at least {self._job.least} "
            f"must; start it again to go on from here.{why}"
        )


def request_place(request: Request) -> tuple[str, str, int]:
    """Where in the job a request stands."""
    return request.phase, request.verb, request.round


def _all_of(order: Order) -> Message:
    down = {f"{name}: {k}": v for name, c in order.conclusions.items() for k, v in c.items()}
    return {**order.query, **down}


def _judge(request: Request, site: int, reply: Message) -> str:
    size = message_bytes(reply)
    if size > request.most:
        return f"it has {size} bytes, and at most {request.most} can be right"
    problem = request.check(site, reply)
    return f"it {problem}" if problem else ""
