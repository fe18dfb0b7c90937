"""How long Flower waits: three of its pauses have no option, and cost seconds in every round.

A SuperNode looks for its next message every three seconds, and for a reply of its own app every
half second; whoever fetches a message of which a part is still on its way looks again for that part
after a second, then two, and so on. They are shortened here, in this process alone, those that
cross the network less than the others. It is written for the versions of Flower that
``pyproject.toml`` allows.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

FAR, NEAR = 0.25, 0.02  # seconds between two looks: over the network, within this machine
PARTS = 0.05  # seconds until a part of a message is looked for again


def hurry() -> None:
    """Look again soon for the parts of a message."""
    from flwr.supercore.inflatable import inflatable_utils

    for function in (
        inflatable_utils.pull_objects,
        inflatable_utils.pull_and_inflate_object_from_tree,
    ):
        defaults = function.__kwdefaults__
        if not defaults or "initial_backoff" not in defaults:
            raise RuntimeError("this version of Flower is another than fedcover was written for")
        defaults |= {"initial_backoff": PARTS, "backoff_cap": 1.0}


def hurry_node() -> None:
    """The same, and look soon for messages and for replies."""
    from flwr.supernode import start_client_internal

    hurry()

    def sleep(seconds: float) -> None:
        time.sleep(min(seconds, FAR if seconds > 1 else NEAR))

    vars(start_client_internal)["time"] = SimpleNamespace(**{**vars(time), "sleep": sleep})
