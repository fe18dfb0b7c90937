"""What travels, and how: an order down to a site, a reply up from it; arrays and a few words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fedcover.conformal.protocol import Message, text
from fedcover.ledger import split_part


class Place(NamedTuple):
    """Where in a job a question stands; what concerns all repetitions has no seed."""

    seed: int | None
    part: str
    verb: str
    round: int

    @property
    def phase(self) -> str:
        """What of the job it belongs to, together with other questions of the same kind."""
        return "/".join(split_part(self.part))


@dataclass(frozen=True)
class Item:
    """One question of an order, or something that the coordinator has found out."""

    place: Place
    arrays: Message = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """What a site is to do, as it arrives there: several questions, which get one reply.

    ``told`` is what the coordinator has found out since the site's last order; a site keeps it for
    the whole job.
    """

    job: str
    items: tuple[Item, ...]
    told: tuple[Item, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """Of its questions."""
        return tuple(item.place for item in self.items)

    @property
    def messages(self) -> list[tuple[Place, Message]]:
        """Everything that it carries, for a ledger."""
        return [(item.place, item.arrays) for item in (*self.told, *self.items)]


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
    def to(cls, order: Order, contents: tuple[Message, ...] = (), problem: str = "") -> "Reply":
        """The reply to an order."""
        return cls(order.job, order.places, contents, problem)

    @property
    def messages(self) -> list[tuple[Place, Message]]:
        """Everything that it carries, for a ledger."""
        if self.problem:
            return [(place, {"problem": text(self.problem)}) for place in self.places[:1]]
        return list(zip(self.places, self.contents, strict=False))


class Transport(Protocol):
    """A way to reach sites. Sites are known by their names, which they tell when greeted."""

    transfer: float  # seconds spent on sending and receiving so far

    def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:
        """Send the order to everyone, until so many sites have replied or the time is over."""
        ...

    def exchange(
        self, orders: Mapping[str, Order], seconds: float
    ) -> Iterator[tuple[str, Reply | None]]:
        """Send each site its order; replies as they arrive, also late ones to earlier orders, and
        nothing for a site of which it is known that its order will not be answered."""
        ...
