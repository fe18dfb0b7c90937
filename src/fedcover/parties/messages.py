"""What travels: an order down to a site, a reply up from it; arrays and a few words."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message

Check = Callable[[int, Message], str]
"""Called with a site's number and its reply; says what is wrong with it, or nothing."""


@dataclass(frozen=True)
class Order:
    """What a site is to do, as it arrives there.

    ``conclusions`` are what the coordinator has found out since the site's last order, by name; a
    site keeps them for the whole job. Nothing in an order is for one site alone: a transport can
    carry the same bytes to all.
    """

    job: str
    phase: str
    verb: str
    round: int
    query: Message = field(default_factory=dict)
    conclusions: Mapping[str, Message] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, str, int]:
        """Where in the job it stands."""
        return self.phase, self.verb, self.round

    @property
    def arrays(self) -> Message:
        """Everything that it carries, for a ledger."""
        concluded = {
            f"{name}: {key}": array
            for name, content in self.conclusions.items()
            for key, array in content.items()
        }
        return {**self.query, **concluded}


@dataclass(frozen=True)
class Reply:
    """What came back from a site, with the place that it answers to; or why it could not.

    ``seconds`` is how long the site worked, and ``preparing`` how long of it to read its data and
    lay them out, which only the first order of a phase needs.
    """

    job: str
    phase: str
    verb: str
    round: int
    content: Message = field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0
    preparing: float = 0.0

    @classmethod
    def to(cls, order: Order, content: Message | None = None, problem: str = "") -> Reply:
        """The reply to an order."""
        return cls(order.job, *order.place, content or {}, problem)

    @property
    def place(self) -> tuple[str, str, int]:
        """Where in the job the site believes to be."""
        return self.phase, self.verb, self.round


@dataclass(frozen=True)
class Request:
    """What the coordinator asks of all sites, or of those numbered in ``to``.

    ``most`` is how many bytes an honest reply can have; ``check`` judges one of that size.
    """

    phase: str
    verb: str
    round: int
    query: Message
    check: Check
    most: int
    to: frozenset[int] | None = None


@dataclass(frozen=True)
class Conclusion:
    """What the coordinator has found out, and every site must know from its next order on."""

    name: str
    content: Message


Replies = dict[int, Message]
"""By site number: the replies that came in time and were not refused."""

Result = TypeVar("Result")
Conversation = Generator[Request | Conclusion, Replies, Result]
"""The coordinator's side of a job, or of a part of it."""


def text(words: str) -> NDArray[np.uint8]:
    """Words as an array."""
    return np.frombuffer(words.encode(), dtype=np.uint8)


def words(array: NDArray[Any]) -> str:
    """The words of :func:`text`."""
    return np.asarray(array, dtype=np.uint8).tobytes().decode()
