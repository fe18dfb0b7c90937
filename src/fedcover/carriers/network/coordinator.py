"""Leads a job's conversations over a transport: asks, waits, refuses, goes on with who is there."""

import json
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np

from fedcover.algorithm import requests
from fedcover.algorithm.checks import Arrays, expected
from fedcover.algorithm.requests import Census, Conversation
from fedcover.algorithm.session import Outcome, Session
from fedcover.carriers.messages import FINISH, Asked, lead, queries_of, result_of, told_by, verb_of
from fedcover.carriers.network import journal
from fedcover.carriers.network.checkpoint import Checkpoint
from fedcover.carriers.network.job import COUNTED, HELLO, SITES, Job, roll, terms_text, unfit
from fedcover.carriers.network.journal import Record, Refusal
from fedcover.carriers.network.messages import Item, Order, Place, Reply, Transport
from fedcover.conformal.protocol import Direction, Message, message_bytes, text, words
from fedcover.errors import DataError
from fedcover.graphs.schema import Schema
from fedcover.graphs.splits import Role, check_counts
from fedcover.models.vae import check_size
from fedcover.plans import columns_of

Outcomes = dict[int, dict[str, Outcome]]  # by seed and method

CLOSING = 30.0  # seconds that sites have to say goodbye

_log = getLogger(__name__)


class Coordinator:
    """One job over one transport.

    ``folder`` gets its ledger and its checkpoint: a job that goes on from there asks for nothing
    again. Without a folder nothing is kept.
    """

    def __init__(
        self, job: Job, schema: Schema, transport: Transport, folder: Path | None = None
    ) -> None:
        self.job, self.schema, self._transport = job.settled(schema), schema, transport
        self._checkpoint = Checkpoint(folder)
        self._ledger = folder and folder / journal.FILE
        self._nonce = np.frombuffer(secrets.token_bytes(16), dtype=np.uint8)
        self._told: dict[Place, Message] = {}
        self._delivered: defaultdict[int, dict[Place, Message]] = defaultdict(dict)  # by site
        self._away: set[int] = set()
        self.job_id = ""
        self.record = Record()
        self.sites: tuple[str, ...] = ()
        self.census = Census({})
        self.groups: tuple[str, ...] = ()  # that have thresholds of their own

    def run(self) -> Outcomes:
        """Greet the sites, and lead all repetitions with them."""
        self._greet()
        privacy = self.job.config.privacy
        if privacy is not None and any(m.startswith("gen") for m in self.job.config.methods):
            for site, nodes in self.census.of("train").items():
                check_size(nodes, site, privacy)
        talks = {seed: self._repetition() for seed in self.job.config.seed_range}
        outcomes = lead(talks, self._at_once, self._ask)
        self._close()
        return outcomes

    def _repetition(self) -> Conversation[dict[str, Outcome]]:
        config, impute = self.job.config, self.job.missing == "impute"
        size = len(self.schema.labels), len(self.schema.feature_names)
        session = Session(
            config, *size, self.census, self.sites, impute=impute, stride=self.job.stride
        )
        yield from session.prepare()
        self.groups = session.groups
        outcomes = {}
        for name in config.methods:
            outcomes[name] = yield from session.method(name)
        return outcomes

    def _at_once(self, seed: int, request: requests.Notice) -> Any:
        """What needs no message of its own: conclusions travel with the next order."""
        match request:
            case requests.Recall():
                return self._checkpoint.read(f"{seed} {request.part}")
            case requests.Keep():
                self._checkpoint.write(f"{seed} {request.part}", request.state())
            case requests.Tell():
                self._told[Place(seed, request.part, "", 0)] = request.arrays
            case requests.Finish():
                self._told[Place(seed, request.part, FINISH, 0)] = told_by(request)
        return None

    # Who takes part.

    def _greet(self) -> None:
        """Who takes part: the sites that prove the schema. Numbers follow from their names.

        A job that goes on knows its sites, and can do without some of them for now.
        """
        begun = self._checkpoint.read("job")
        settings = text(terms_text(self.job))
        terms = text(f"{self.schema.fingerprint} {self.job.average} {words(settings)}")
        if begun is not None and not np.array_equal(begun["terms"], terms):
            raise DataError(
                "the checkpoint is of a job with other settings or another schema; choose another "
                "folder, or delete it to begin anew."
            )
        self.job_id = words(begun["id"]) if begun is not None else secrets.token_hex(6)
        query = {"settings": settings, "schema": text(self.schema.to_json()), "nonce": self._nonce}
        order = Order(self.job_id, (Item(Place(None, HELLO, "hello", 0), query),))
        known = None if begun is None else json.loads(words(begun["sites"]))
        wanted = self.job.sites if known is None else len(known)
        counts, refused = {}, ""
        for name, reply in self._transport.greet(order, wanted, self.job.join).items():
            self._write(name, "down", order)
            self._write(name, "up", reply)
            if problem := unfit(self.schema, self._nonce, name, reply):
                refused = f" Site {name} cannot take part: {problem}"
            elif known is None or name in known:
                said = reply.contents[0]["counts"].tolist()
                counts[name] = dict(zip(COUNTED, said, strict=True))
        if len(counts) < (wanted if known is None else self.job.least):
            raise DataError(
                f"{len(counts)} of {wanted} sites came within {self.job.join:g} s "
                f"({', '.join(sorted(counts)) or 'none'}); is every SuperNode running?{refused}"
            )
        known = known or dict(sorted(counts.items()))
        self.sites, self.census = tuple(known), Census(dict(enumerate(known.values())))
        check_counts(Role.TEST, [*self.census.of("test").values()], self.sites)
        self._told[Place(None, SITES, "", 0)] = {"roll": roll(self.job_id, self.sites)}
        self._away = {k for k, name in enumerate(known) if name not in counts}
        self._checkpoint.write(
            "job", {"id": text(self.job_id), "terms": terms, "sites": text(json.dumps(known))}
        )
        if (earlier := self._checkpoint.read("record")) is not None:
            self.record = Record.from_json(words(earlier["record"]))

    def _close(self) -> None:
        """Tell the sites that the job is over; both sides write down the other's ledger's hash.

        What was found stands whoever answers; a site that is silent is named.
        """
        if self._ledger is None:
            return
        place, orders = Place(None, journal.CLOSE, "close", 0), {}
        for site, name in enumerate(self.sites):
            if site not in self._away:
                own = {journal.HEAD: journal.head(self._ledger)}
                orders[name] = Order(self.job_id, (Item(place, own),))
                self._write(name, "down", orders[name])
        silent, check = set(self.sites), Arrays({journal.HEAD: (np.uint8, (32,))})
        for name, reply in self._transport.exchange(orders, min(self.job.timeout, CLOSING)):
            if reply is None or reply.job != self.job_id or reply.places != (place,):
                continue
            if not (reply.problem or _judge(0, reply, [(check, check.nbytes)])):
                self._write(name, "up", reply)
                silent.discard(name)
            if not silent & orders.keys():
                break
        self.record.unclosed = [name for name in self.sites if name in silent]

    # One round.

    def _ask(self, questions: Sequence[Asked]) -> list[Any]:
        """One order to every site that is asked; whoever answers well in time takes part."""
        asked: dict[int, dict[int, Item]] = {}  # by site and the number of the question
        for number, (seed, request) in enumerate(questions):
            for site, query in queries_of(request, self.census).items():
                asked.setdefault(site, {})[number] = Item(_place(seed, request), query)
        asked = dict(sorted(asked.items()))
        replies = self._exchange(questions, asked)
        results = []
        for number, (seed, request) in enumerate(questions):
            own = {site: found[number] for site, found in replies.items() if number in found}
            every = sum(number in items for items in asked.values())
            least = min(self.job.least, every)  # not all sites are asked for a term of +neighbours
            if len(own) < least:
                place = _place(seed, request)
                there = ", ".join(self.sites[site] for site in own) or "none"
                why = f" {self.record.refused[-1]}" if self.record.refused else ""
                raise DataError(
                    f"{place.phase}, round {place.round}: {len(own)} of {every} sites answered "
                    f"within {self.job.timeout:g} s ({there}), but at least {least} must; "
                    f"start it again to go on from here.{why}"
                )
            results.append(result_of(request, own, self.census, self.job.average, seed))
        return results

    def _expected(self, request: requests.Question) -> tuple[requests.Check, int]:
        """What judges the replies, and how many bytes each can have."""
        columns = len(self.schema.feature_names)
        if isinstance(request, requests.Train):
            known = self.job.config, len(self.schema.labels), columns
            columns = columns_of(*known, request.part)
        return expected(request, columns, self.census)

    def _exchange(
        self, questions: Sequence[Asked], asked: Mapping[int, Mapping[int, Item]]
    ) -> dict[int, dict[int, Message]]:
        """The replies that came in time and were not refused, by site and question."""
        began, sent, slowest = time.monotonic(), self._transport.transfer, Reply("", ())
        place = _place(*questions[0])
        checks = [self._expected(request) for _, request in questions]
        orders = {self.sites[site]: self._order(site, items) for site, items in asked.items()}
        replies: dict[int, dict[int, Message]] = {}
        in_vain: set[int] = set()  # those who refused or were refused, or are known to be gone
        for name, order in orders.items():
            self._write(name, "down", order)
        for name, reply in self._transport.exchange(orders, self.job.timeout):
            if name not in orders or (reply is not None and reply.job != self.job_id):
                continue
            site = self.sites.index(name)
            if reply is None:
                in_vain.add(site)
                self._away.add(site)
            elif reply.places != orders[name].places:
                self._aside(place, site, name, reply)
                continue
            else:
                self._write(name, "up", reply)
                slowest = max(slowest, reply, key=lambda one: one.seconds)
                self._away.discard(site)
                problem = reply.problem or _judge(site, reply, [checks[n] for n in asked[site]])
                if problem:
                    in_vain.add(site)
                    self._refuse(place, name, f"was refused: {problem}")
                else:
                    replies[site] = dict(zip(asked[site], reply.contents, strict=True))
                    self._delivered[site] |= {one.place: one.arrays for one in orders[name].told}
            waiting = asked.keys() - self._away - replies.keys() - in_vain
            if not waiting and len(replies) >= min(self.job.least, len(asked)):
                break
        replies = dict(sorted(replies.items()))
        self._away |= asked.keys() - replies.keys() - in_vain
        for phase in dict.fromkeys(_place(*question).phase for question in questions):
            self.record.answered.setdefault(phase, []).append(tuple(replies))
        transfer = self._transport.transfer - sent
        self.record.spend(place.phase, time.monotonic() - began, transfer, slowest)
        self._checkpoint.write("record", {"record": text(self.record.to_json())})
        where = (place.phase, place.round)
        _log.info("%s, round %d: %d of %d sites", *where, len(replies), len(self.sites))
        return replies

    def _write(self, site: str, direction: Direction, carried: Order | Reply) -> None:
        if self._ledger is not None:
            journal.record(self._ledger, self.job_id, site, direction, carried.messages)

    def _order(self, site: int, items: Mapping[int, Item]) -> Order:
        """What it is asked, with what it has not been told yet."""
        known = self._delivered[site]
        fresh = (Item(*one) for one in self._told.items() if known.get(one[0]) is not one[1])
        return Order(self.job_id, tuple(items.values()), tuple(fresh))

    def _aside(self, place: Place, site: int, name: str, reply: Reply) -> None:
        """Not a reply to this round's order: its site is there again, but what it says is past."""
        if [one.verb for one in reply.places] == ["hello"]:
            if problem := unfit(self.schema, self._nonce, name, reply):
                self._refuse(place, name, f"was refused: it cannot take part again: {problem}")
                return
            self._delivered[site].clear()  # it may have lost what it knew
        elif reply.places:
            late = "came after the round was over, and was not used"
            self._refuse(reply.places[0], name, late)
        self._away.discard(site)

    def _refuse(self, place: Place, name: str, why: str) -> None:
        self.record.refused.append(Refusal(place.phase, place.round, name, why.rstrip(".")))


def _place(seed: int, request: requests.Question) -> Place:
    return Place(seed, request.part, verb_of(request), request.round)


def _judge(site: int, reply: Reply, checks: Sequence[tuple[requests.Check, int]]) -> str:
    """What is wrong with a reply: a site that is wrong in one answer is not heard in the others."""
    if len(reply.contents) != len(checks):
        return f"it has {len(reply.contents)} answers to {len(checks)} questions"
    for content, (check, most) in zip(reply.contents, checks, strict=True):
        size = message_bytes(content)
        if size > most:
            return f"it has {size} bytes, and at most {most} can be right"
        try:
            problem = check(site, content)
        except Exception as error:  # whatever a site sends, the round goes on
            return f"it cannot be understood: {type(error).__name__}"
        if problem:
            return f"it {problem}"
    return ""
