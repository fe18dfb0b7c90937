"""Carries a conversation to the sites: asks, waits, refuses, and goes on with who is there."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message, message_bytes
from fedcover.errors import DataError
from fedcover.graphs.schema import Schema
from fedcover.parties import proof
from fedcover.parties.checkpoint import Checkpoint
from fedcover.parties.checks import MOST_COUNTED
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
from fedcover.parties.record import Record, Refusal

OnRound = Callable[[str, int, int, int], None]
"""Called as ``on_round(phase, round, answered, sites)``."""


class Transport(Protocol):
    """A way to reach sites. Sites are known by their names, which they tell when greeted."""

    transfer: float
    """Seconds spent on sending and receiving so far."""

    def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:
        """Send the order to everyone, until so many sites have replied or the time is over."""
        ...

    def exchange(
        self, orders: Mapping[str, Order], seconds: float
    ) -> Iterator[tuple[str, Reply | None]]:
        """Send each site its order; replies as they arrive, also late ones to earlier orders, and
        nothing for a site of which it is known that its order will not be answered."""
        ...


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
        self._nonce: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
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
        """Who takes part: the sites that prove the schema. Numbers follow from their names.

        A job that goes on knows its sites, and can do without some of them for now.
        """
        begun = self._checkpoint.read("job")
        settings = text(settings_text(self._job.config))
        terms = text(f"{self._schema.fingerprint} {self._job.average} {words(settings)}")
        if begun is not None and not np.array_equal(begun["terms"], terms):
            raise DataError(
                "the checkpoint is of a job with other settings or another schema; choose another "
                "folder, or delete it to begin anew."
            )
        self._id = words(begun["id"]) if begun is not None else secrets.token_hex(6)
        self._nonce = np.frombuffer(secrets.token_bytes(16), dtype=np.uint8)
        query = {"settings": settings, "schema": text(self._schema.to_json()), "nonce": self._nonce}
        order = Order(self._id, "", "hello", 0, query)
        known = None if begun is None else json.loads(words(begun["sites"]))
        wanted = self._job.sites if known is None else len(known)
        counts, unfit = {}, ""
        for name, reply in self._transport.greet(order, wanted, self._job.join).items():
            self._journal.record(self._id, name, "down", order.place, query)
            self._journal.record(self._id, name, "up", order.place, reply.content)
            problem = self._unfit(name, reply)
            if problem:
                unfit = f" Site {name} cannot take part: {problem}"
            elif known is None or name in known:
                counts[name] = dict(zip(COUNTED, reply.content["counts"].tolist(), strict=True))
        if len(counts) < (wanted if known is None else self._job.least):
            raise DataError(
                f"{len(counts)} of {wanted} sites came within {self._job.join:g} s "
                f"({', '.join(sorted(counts)) or 'none'}); is every SuperNode running?{unfit}"
            )
        known = known or dict(sorted(counts.items()))
        self.roster = Roster(tuple(known), dict(enumerate(known.values())))
        self._delivered = {k: set() for k in self.roster.numbers}
        self._conclusions["sites"] = {"roll": proof.roll(self._id, self.roster.names)}
        self._away = {k for k, name in enumerate(known) if name not in counts}
        self._checkpoint.write(
            "job", {"id": text(self._id), "terms": terms, "sites": text(json.dumps(known))}
        )
        earlier = self._checkpoint.read("record")
        if begun is not None and earlier is not None:
            self.record = Record.from_json(words(earlier["record"]))

    def _unfit(self, name: str, reply: Reply) -> str:
        """Why a site that said hello cannot take part."""
        content = reply.content
        if reply.problem or set(content) != {"proof", "counts"}:
            return reply.problem or "it does not say hello as it should."
        if not np.array_equal(content["proof"], proof.of(self._schema, self._nonce, name)):
            return "its schema is not the agreed one."
        counts = content["counts"]
        if counts.shape != (len(COUNTED),) or counts.dtype != np.int64:
            return "its numbers of nodes are not counts."
        if (counts < 0).any() or (counts > MOST_COUNTED).any():
            return "its numbers of nodes cannot be."
        if counts[0] < counts[1:].sum():  # more nodes than roles: some have no label
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
        began, sent, slowest = time.monotonic(), self._transport.transfer, Reply("", "", "", 0)
        asked = self.roster.numbers if request.to is None else request.to
        orders = {self.roster.names[site]: self._order(request, site) for site in sorted(asked)}
        replies: Replies = {}
        in_vain: set[int] = set()  # those who refused or were refused, or are known to be gone
        for name, order in orders.items():
            self._journal.record(self._id, name, "down", order.place, order.arrays)
        for name, reply in self._transport.exchange(orders, self._job.timeout):
            if name not in orders:
                continue
            site = self.roster.names.index(name)
            if reply is None:
                in_vain.add(site)
                self._away.add(site)
            elif reply.job != self._id:
                continue
            elif reply.place != orders[name].place:
                self._aside(request, site, name, reply)
                continue
            else:
                self._journal.record(self._id, name, "up", reply.place, reply.content)
                slowest = max(slowest, reply, key=lambda one: one.seconds)
                self._away.discard(site)
                problem = reply.problem or _judge(request, site, reply.content)
                if problem:
                    in_vain.add(site)
                    self._refuse(request, name, f"was refused: {problem.rstrip('.')}")
                else:
                    replies[site] = reply.content
                    self._delivered[site] |= orders[name].conclusions.keys()
            waiting = asked - self._away - replies.keys() - in_vain
            if not waiting and len(replies) >= self._job.least:
                break
        replies = dict(sorted(replies.items()))
        self._away |= asked - replies.keys() - in_vain
        self.record.answered.setdefault(request.phase, []).append(tuple(replies))
        transfer = self._transport.transfer - sent
        self._spent(request.phase, time.monotonic() - began, transfer, slowest)
        self._checkpoint.write("record", {"record": text(self.record.to_json())})
        if self._on_round is not None:
            self._on_round(request.phase, request.round, len(replies), len(self.roster.names))
        if len(replies) < self._job.least:
            raise DataError(self._too_few(request, asked, replies))
        return replies

    def _order(self, request: Request, site: int) -> Order:
        fresh = {k: c for k, c in self._conclusions.items() if k not in self._delivered[site]}
        return Order(self._id, request.phase, request.verb, request.round, request.query, fresh)

    def _aside(self, request: Request, site: int, name: str, reply: Reply) -> None:
        """Not a reply to this round's order: its site is there again, but what it says is past."""
        if reply.verb == "hello":
            problem = self._unfit(name, reply)
            if problem:
                self._refuse(
                    request, name, f"was refused: it cannot take part again: {problem.rstrip('.')}"
                )
                return
            self._delivered[site].clear()  # it may have lost what it knew
        else:
            self._refuse(reply, name, "came after the round was over, and was not used")
        self._away.discard(site)

    def _refuse(self, place: Request | Reply, name: str, why: str) -> None:
        self.record.refused.append(Refusal(place.phase, place.round, name, why))

    def _spent(self, phase: str, whole: float, transfer: float, slowest: Reply) -> None:
        """A round's seconds: what its slowest site did, what travelling took, and the rest."""
        causes = {
            "start-up": slowest.preparing,
            "training": slowest.seconds - slowest.preparing,
            "transfer": transfer,
        }
        causes["waiting"] = max(whole - sum(causes.values()), 0.0)
        sums = self.record.seconds.setdefault(phase, {})
        for cause, seconds in causes.items():
            sums[cause] = sums.get(cause, 0.0) + seconds

    def _too_few(self, request: Request, asked: frozenset[int], replies: Replies) -> str:
        there = ", ".join(self.roster.names[site] for site in sorted(replies)) or "none"
        why = f" {self.record.refused[-1]}" if self.record.refused else ""
        return (
            f"{request.phase}, round {request.round}: {len(replies)} of {len(asked)} sites "
            f"answered within {self._job.timeout:g} s ({there}), but at least {self._job.least} "
            f"must; start it again to go on from here.{why}"
        )


def _judge(request: Request, site: int, reply: Message) -> str:
    size = message_bytes(reply)
    if size > request.most:
        return f"it has {size} bytes, and at most {request.most} can be right"
    try:
        problem = request.check(site, reply)
    except Exception as error:  # whatever a site sends, the round goes on
        return f"it cannot be understood: {type(error).__name__}"
    return f"it {problem}" if problem else ""
