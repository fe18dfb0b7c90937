"""How long Flower waits: some of its pauses have no option, and cost seconds in every round.

A SuperNode looks for its next message every three seconds, and for a reply of its own app every
half second; for a part of a message that is still on its way after a second, then two, and so on.
These pauses are shortened here, in this process alone. The longer nothing has come, the less often
one looks over the network, so that waiting costs few requests. It is written for the versions of
Flower that ``pyproject.toml`` allows.
"""

import threading
import time
from types import SimpleNamespace

PARTS = 0.05  # seconds until a part of a message is looked for again
TRIES = 8  # to get a part of an order from the site's own node: 4 seconds


def pause(since: float, share: float, shortest: float, longest: float) -> float:
    """Seconds until one looks again: a share of the time in which nothing has come."""
    return min(max(share * (time.monotonic() - since), shortest), longest)


class NodePace:
    """What a node does instead of sleeping: it wakes its site for an order, and waits for the
    reply."""

    def __init__(self) -> None:
        self.order, self.reply = threading.Event(), threading.Event()
        self._since = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Flower's node sleeps for seconds when no message is there, and for less when one is
        there but no reply to it."""
        if seconds > 1:
            time.sleep(pause(self._since, 0.2, 0.1, 3.0))
            return
        self.order.set()
        self.reply.wait(seconds)
        self.reply.clear()
        self._since = time.monotonic()


def hurry() -> None:
    """Look again soon for the parts of a message."""
    from flwr.supercore.inflatable import inflatable_utils

    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        defaults = getattr(inflatable_utils, name).__kwdefaults__
        if not defaults or "initial_backoff" not in defaults:
            raise RuntimeError("this version of Flower is another than fedcover was written for")
        defaults |= {"initial_backoff": PARTS, "backoff_cap": 1.0}


def hurry_node() -> NodePace:
    """The same, and a node's own pauses.

    A node hands an order on when all its parts are there. Of one whose coordinator died while it
    was fetched, the rest never comes: Flower would have the site wait for eight minutes.
    """
    from flwr.supercore.inflatable import inflatable_utils
    from flwr.supernode import start_client_internal

    hurry()
    own = inflatable_utils.pull_and_inflate_object_from_tree.__kwdefaults__  # of the site alone
    assert own is not None
    own["max_tries_per_object"] = TRIES
    pace = NodePace()
    vars(start_client_internal)["time"] = SimpleNamespace(**{**vars(time), "sleep": pace.sleep})
    return pace
