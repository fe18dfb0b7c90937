"""What travels: an order down to a site, a reply up from it; arrays and a few words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message

HELLO, SITES = "data/hello", "data/sites"
"""The parts that a job begins with: who takes part, and with which number."""


class Place(NamedTuple):
    """Where in a job a question stands; what concerns all repetitions has no seed."""

    seed: int | None
    part: str
    verb: str
    round: int

    @property
    def phase(self) -> str:
        """What of the job it belongs to, together with other questions of the same kind."""
        name, _, step = self.part.rpartition("/")
        return f"{name}/{step.partition(' ')[0]}"


@dataclass(frozen=True)
class Item:
    """One question of an order."""

    place: Place
    query: Message = field(default_factory=dict)


@dataclass(frozen=True)
class Conclusion:
    """What the coordinator has found out; ``finish``: a training is over."""

    seed: int | None
    part: str
    arrays: Message = field(default_factory=dict)
    finish: bool = False

    @property
    def place(self) -> Place:
        """As a ledger has it."""
        return Place(self.seed, self.part, "finish" if self.finish else "", 0)


@dataclass(frozen=True)
class Order:
    """What a site is to do, as it arrives there: several questions, which get one reply.

    ``conclusions`` are what the coordinator has found out since the site's last order; a site keeps
    them for the whole job.
    """

    job: str
    items: tuple[Item, ...]
    conclusions: tuple[Conclusion, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """Of its questions."""
        return tuple(item.place for item in self.items)

    @property
    def messages(self) -> list[tuple[Place, Message]]:
        """Everything that it carries, for a ledger."""
        told = [(one.place, one.arrays) for one in self.conclusions]
        return [*told, *((item.place, item.query) for item in self.items)]


@dataclass(frozen=True)
class Reply:
    """What came back from a site to these questions; or why it could not.

    ``seconds`` is how long the site worked, and ``preparing`` how long of it to read its data.
    """

    job: str
    places: tuple[Place, ...]
    contents: tuple[Message, ...] = ()
    problem: str = ""
    seconds: float = 0.0
    preparing: float = 0.0

    @classmethod
    def to(cls, order: Order, contents: tuple[Message, ...] = (), problem: str = "") -> Reply:
        """The reply to an order."""
        return cls(order.job, order.places, contents, problem)

    @property
    def messages(self) -> list[tuple[Place, Message]]:
        """Everything that it carries, for a ledger."""
        if self.problem:
            return [(place, {"problem": text(self.problem)}) for place in self.places[:1]]
        return list(zip(self.places, self.contents, strict=False))


def text(words: str) -> NDArray[np.uint8]:
    """Words as an array."""
    return np.frombuffer(words.encode(), dtype=np.uint8)


def words(array: NDArray[Any]) -> str:
    """The words of :func:`text`."""
    return np.asarray(array, dtype=np.uint8).tobytes().decode()
