"""Reaches the sites through Flower's SuperLink, and takes replies as they arrive.

Flower's own ``send_and_receive`` looks for replies every three seconds; here they are pulled at
short intervals that grow while nothing comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from logging import getLogger

from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from fedcover.errors import DataError
from fedcover.flower.wire import order_message, reply_of
from fedcover.parties.messages import Order, Reply

SHORTEST, LONGEST = 0.02, 0.5  # seconds between two looks for replies
MOST = 1 << 30  # bytes of a reply that is unpacked at all

_log = getLogger(__name__)


class FlowerTransport:
    """Sites are nodes of a grid; which node is which site, they say themselves."""

    def __init__(self, grid: Grid, most: int = MOST) -> None:
        self._grid, self._most = grid, most
        self._node: dict[str, int] = {}
        self._open: dict[str, str] = {}  # messages without a reply yet, to their sites
        self._hello: Order | None = None
        self._greeted: set[int] = set()

    def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:
        """Say hello to every node that turns up, until enough sites have answered."""
        self._hello = order
        found: dict[str, Reply] = {}
        for name, reply in self._pull(seconds, lambda: self._say_hello(seconds)):
            found[name] = reply
            if len(found) >= sites:
                break
        return found

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        """Push all orders at once, then pull."""
        messages = [
            order_message(order, self._node[name], seconds) for name, order in orders.items()
        ]
        for name, pushed in zip(orders, self._grid.push_messages(messages), strict=False):
            if pushed:
                self._open[pushed] = name
        yield from self._pull(seconds, lambda: self._say_hello(seconds))

    def _say_hello(self, seconds: float) -> None:
        """A node that is new may be a site that has come back under another number."""
        fresh = [node for node in self._grid.get_node_ids() if node not in self._greeted]
        if not fresh or self._hello is None:
            return
        messages = [order_message(self._hello, node, seconds) for node in fresh]
        for node, pushed in zip(fresh, self._grid.push_messages(messages), strict=False):
            if pushed:
                self._open[pushed] = ""
                self._greeted.add(node)

    def _pull(
        self, seconds: float, now_and_then: Callable[[], None]
    ) -> Iterator[tuple[str, Reply]]:
        """Replies until the time is over; the receiver stops earlier by asking for no more."""
        end, pause, looked = time.monotonic() + seconds, SHORTEST, 0.0
        while time.monotonic() < end:
            if time.monotonic() - looked > 1.0:
                now_and_then()
                looked = time.monotonic()
            arrived = list(self._grid.pull_messages(list(self._open))) if self._open else []
            pause = SHORTEST if arrived else min(pause * 1.5, LONGEST)
            for message in arrived:
                named = self._read(message)
                if named is not None:
                    yield named
            if not arrived:
                time.sleep(min(pause, max(end - time.monotonic(), 0)))

    def _read(self, message: FlowerMessage) -> tuple[str, Reply] | None:
        asked = self._open.pop(message.metadata.reply_to_message_id, None)
        if asked is None:
            return None
        try:
            name, reply = reply_of(message, self._most)
        except DataError as error:
            _log.warning("a reply%s was of no use: %s", f" of {asked}" if asked else "", error)
            return None
        if asked and name != asked:
            _log.warning("a reply to %s came under the name %s, and was dropped", asked, name)
            return None
        if not asked:
            self._node[name] = message.metadata.src_node_id
            if self._hello is None or reply.place != self._hello.place:
                return None
        return name, reply
