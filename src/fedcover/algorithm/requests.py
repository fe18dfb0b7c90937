"""What a conversation may ask for; how it reaches the parties is a carrier's affair.

An algorithm is a generator. It yields requests, is sent what came of each, and returns its result.
It holds sums, thresholds and weights, never a node.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message
from fedcover.models import Weights
from fedcover.training.plan import Plan

Replies = dict[int, Message]  # by party number: the replies that came in time and were not refused

Check = Callable[[int, Message], str]
"""Called with a party's number and its reply; says what is wrong with it, or nothing."""

Result = TypeVar("Result")
Conversation = Generator["Request", Any, Result]
"""The coordinator's side of a job, or of a part of it."""


@dataclass(frozen=True)
class Census:
    """How many nodes every party has, by its number: of each role, without a label, and in all."""

    counts: Mapping[int, Mapping[str, int]]

    @property
    def parties(self) -> frozenset[int]:
        """The numbers of all parties."""
        return frozenset(self.counts)

    def of(self, kind: str) -> dict[int, int]:
        """One count by party."""
        return {party: counts[kind] for party, counts in self.counts.items()}

    @property
    def tested(self) -> bool:
        """Whether there are test nodes: all parties have some, or none."""
        return any(self.of("test").values())

    @property
    def judged(self) -> dict[int, int]:
        """By party, the nodes whose sets are counted: test nodes, or if there is none, those
        without a label."""
        return self.of("test" if self.tested else "unlabelled")


class Model(Protocol):
    """Weights, or what a carrier holds in their place until somebody wants to see them."""

    @property
    def weights(self) -> Weights:
        """The weights themselves."""
        ...


@dataclass(frozen=True)
class Ask:
    """A question to all parties, or to those in ``to``; sent back are their :data:`Replies`.

    ``part`` says what of the job it belongs to, ``verb`` what a party is to do, ``own`` what
    further arrays each party alone gets. ``check`` judges a reply of up to ``most`` bytes.
    """

    part: str
    verb: str
    query: Message = field(default_factory=dict)
    round: int = 0
    own: Mapping[int, Message] = field(default_factory=dict)
    to: frozenset[int] | None = None
    check: Check = lambda _party, _reply: ""

    @property
    def most(self) -> int:
        """How many bytes an honest reply can have: as many as the check knows, or 4 MB."""
        return getattr(self.check, "nbytes", 1 << 22)


@dataclass(frozen=True)
class Sum(Ask):
    """A question whose answers, integers, the algorithm gets added up: sent back is one message.

    Until sums are masked, a network's coordinator still receives every term.
    """


@dataclass(frozen=True)
class Train:
    """One round of local training at every party, of the model called ``part``.

    Models that are averaged: the parties measure the loss of ``model`` (None: drawn from the seed)
    on their validation nodes, and, if ``fit``, train on from it. Models of their own (the plan does
    not average): they train ``rounds`` rounds and measure the loss after each; without ``fit``,
    that of the start alone. Sent back is a :class:`Round`.
    """

    part: str
    plan: Plan
    round: int
    model: Model | None = None
    fit: bool = True
    keep: int | None = None  # after how many rounds the parties' own models were best so far
    rounds: int = 1


@dataclass(frozen=True)
class Round:
    """What came of :class:`Train`: mean losses over all validation nodes, and the new average."""

    losses: tuple[float, ...]
    model: Model | None = None


@dataclass(frozen=True)
class Finish:
    """The training called ``part`` is over: the parties keep ``model``, or the best of their own.

    ``keep`` is as in :class:`Train`. A model that is averaged is dropped if none is given.
    """

    part: str
    plan: Plan
    model: Model | None = None
    keep: int | None = None


@dataclass(frozen=True)
class Tell:
    """What the coordinator has found out, and every party must know from its next order on."""

    part: str
    arrays: Message


@dataclass(frozen=True)
class Recall:
    """What :class:`Keep` last kept under this name; None if there is nothing."""

    part: str


@dataclass(frozen=True)
class Keep:
    """Remember this, in case the coordinator must begin again; only who remembers asks for it."""

    part: str
    state: Callable[[], Message]


@dataclass(frozen=True)
class Parallel:
    """Conversations that do not depend on each other; sent back are their results, by name.

    A network takes them in step, one message for all; a simulation one after another.
    """

    talks: Mapping[str, Conversation[Any]]


Question = Ask | Train  # what parties reply to
Notice = Tell | Finish | Recall | Keep  # what needs no reply of a party
Request = Question | Notice | Parallel


def once(part: str, talk: Conversation[Message]) -> Conversation[Message]:
    """What a conversation came to, or came to before a crash: arrays that a checkpoint can hold."""
    before: Message | None = yield Recall(part)
    if before is not None:
        return before
    found = yield from talk
    yield Keep(part, lambda: found)
    return found


def gathered(replies: Replies, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The rows of this array that the parties sent, one below the other, and whose each is."""
    parties = sorted(replies)
    sent = [replies[party][name] for party in parties]
    return np.concatenate(sent), np.repeat(np.array(parties), [len(own) for own in sent])
