"""Reaches the sites through Flower's SuperLink, and takes replies as they arrive.

Flower's own ``send_and_receive`` looks for replies every three seconds; here they are pulled after
pauses that are short at first and grow with the round.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from logging import getLogger

from flwr.app import Message as FlowerMessage
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedcover.carriers.network.flower.pace import pause
from fedcover.carriers.network.flower.wire import order_message, reply_of
from fedcover.carriers.network.messages import Order, Reply
from fedcover.errors import DataError

NEWCOMERS = 3.0  # seconds between two looks for nodes that have come
AGAIN = 15.0  # seconds until a node that has not answered to a hello hears another
MOST = 1 << 30  # bytes of a reply that is unpacked at all
GONE = (  # what the SuperLink says in place of a node that does not answer
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
)

_log = getLogger(__name__)


class FlowerTransport:
    """Sites are nodes of a grid; which node is which site, they say themselves."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.transfer = 0.0
        self._node: dict[str, int] = {}
        self._open: dict[str, tuple[str, Order]] = {}  # sent messages without a reply yet
        self._orders: dict[str, Order] = {}  # this round's
        self._hello: Order | None = None
        self._arrived: deque[FlowerMessage] = deque()
        self._greeted: dict[int, float] = {}  # when each node was last said hello to
        self._registered: dict[int, str] = {}
        self._looked = -NEWCOMERS

    def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:
        """Say hello to every node that turns up, until enough sites have answered."""
        self._hello = order
        found: dict[str, Reply] = {}
        for name, reply in self._pull(seconds):
            if reply is not None:
                found[name] = reply
            if len(found) >= sites:
                break
        return found

    def exchange(
        self, orders: Mapping[str, Order], seconds: float
    ) -> Iterator[tuple[str, Reply | None]]:
        """Push all orders at once, then pull."""
        self._orders = {name: order for name, order in orders.items() if name in self._node}
        self._push([(name, self._node[name], o) for name, o in self._orders.items()], seconds)
        yield from self._pull(seconds)

    def _push(self, orders: Sequence[tuple[str, int, Order]], seconds: float) -> None:
        began = time.monotonic()
        messages = [order_message(order, node, seconds) for _, node, order in orders]
        if not messages:
            return
        for (name, _, order), sent in zip(orders, self._grid.push_messages(messages), strict=True):
            if sent:
                self._open[sent] = (name, order)
        self.transfer += time.monotonic() - began

    def _greet_newcomers(self, seconds: float) -> None:
        """A node that is new may be a site that comes late, or back under another number."""
        if time.monotonic() - self._looked < NEWCOMERS:
            return
        self._looked = time.monotonic()
        nodes = {one.node_id: one.name for one in self._grid.get_nodes()}
        self._registered |= nodes
        heard = {n for n, when in self._greeted.items() if self._looked - when < AGAIN}
        fresh = [node for node in nodes if node not in heard | set(self._node.values())]
        if fresh and self._hello is not None:
            self._push([("", node, self._hello) for node in fresh], seconds)
            self._greeted |= dict.fromkeys(fresh, self._looked)

    def _pull(self, seconds: float) -> Iterator[tuple[str, Reply | None]]:
        """Replies until the time is over; the receiver stops earlier by asking for no more."""
        start = time.monotonic()
        end = start + seconds
        while time.monotonic() < end:
            self._greet_newcomers(seconds)
            began = time.monotonic()
            arrived = list(self._grid.pull_messages(list(self._open))) if self._open else []
            if arrived:
                self.transfer += time.monotonic() - began
            self._arrived.extend(arrived)
            while self._arrived:  # who takes no more replies leaves the rest for the next round
                if (named := self._read(self._arrived.popleft())) is not None:
                    yield named
            time.sleep(min(pause(start, 0.1, 0.05, 1.0), max(end - time.monotonic(), 0)))

    def _read(self, message: FlowerMessage) -> tuple[str, Reply | None] | None:
        asked, order = self._open.pop(message.metadata.reply_to_message_id, ("", None))
        if order is None:
            return None
        if message.has_error() and message.error.code in GONE:
            return (asked, None) if order is self._orders.get(asked) else None
        try:
            name, reply = reply_of(message, MOST)
        except DataError as error:
            _log.warning("a reply of %s is of no use: %s", asked or "a newcomer", error)
            return (asked, Reply.to(order, problem=f"{error}.")) if asked else None
        if asked and name != asked:
            return asked, Reply.to(order, problem="it answers under another name.")
        if reply.places != order.places:
            return (asked, Reply.to(order, problem="it is of another round.")) if asked else None
        if not asked and not self._bind(name, message.metadata.src_node_id):
            return None
        return name, reply

    def _bind(self, name: str, node: int) -> bool:
        """A site has the name that its key was registered with, and keeps it while its node is
        there: nobody else can speak for it."""
        registered = self._registered.get(node, "")
        if registered and registered != name:
            _log.warning("the node registered as %s says that it is %s", registered, name)
            return False
        owner = self._node.get(name)
        if owner is not None and owner != node and owner in set(self._grid.get_node_ids()):
            _log.warning("a second node says that it is %s, and is not heard", name)
            return False
        self._node[name] = node
        return True
