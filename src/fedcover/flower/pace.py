"""How long Flower waits: two of its pauses have no option, and cost seconds in every round.

A SuperNode looks for its next message every three seconds, and whoever fetches a message of which
a part is still on its way looks again for that part after a second, then two, and so on. Both are
shortened here, in this process alone. It is written for the versions of Flower that
``pyproject.toml`` allows.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

PAUSE = 0.3  # seconds


def hurry(pause: float = PAUSE) -> None:
    """Let Flower wait no longer than this before it looks again."""
    from flwr.supercore.inflatable import inflatable_utils

    for function in (
        inflatable_utils.pull_objects,
        inflatable_utils.pull_and_inflate_object_from_tree,
    ):
        defaults = function.__kwdefaults__
        if not defaults or "initial_backoff" not in defaults:
            raise RuntimeError("this version of Flower is another than fedcover was written for")
        defaults |= {"initial_backoff": pause, "backoff_cap": 20 * pause}


def hurry_node(pause: float = PAUSE) -> None:
    """The same, and for the loop of a SuperNode."""
    from flwr.supernode import start_client_internal

    hurry(pause)
    clock = {**vars(time), "sleep": lambda seconds: time.sleep(min(seconds, pause))}
    vars(start_client_internal)["time"] = SimpleNamespace(**clock)
