"""All sites in this process: the same messages without a network, for tests and for trying."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedcover.carriers.network.member import Member
from fedcover.carriers.network.messages import Order, Reply


class InProcess:
    """Members that are asked one after another."""

    transfer = 0.0

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = {member.name: member for member in members}

    def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:  # noqa: ARG002
        """Everyone is here."""
        return {name: member.answer(order) for name, member in self._members.items()}

    def exchange(
        self,
        orders: Mapping[str, Order],
        seconds: float,  # noqa: ARG002
    ) -> Iterator[tuple[str, Reply]]:
        """Each member's reply."""
        for name, order in orders.items():
            yield name, self._members[name].answer(order)
