"""fedcover over a network, on Flower: thin adapters, no algorithm in them.

``apps`` is what Flower runs; ``app/`` is the folder for ``flwr run``. ``node`` is a party's
SuperNode that stays warm between messages. What is said is decided in
:mod:`fedcover.carriers.network`.
"""

import socket
import time
from collections.abc import Callable
from pathlib import Path

APP = Path(__file__).parent / "app"
HOST = "127.0.0.1"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""What keeps Flower from telling its makers about this machine."""


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, host: str = HOST, alive: Callable[[], bool] = lambda: True) -> bool:
    """Whether somebody listens there within a minute, or before whoever should is dead."""
    end = time.monotonic() + 60
    while time.monotonic() < end and alive():
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return True
        time.sleep(0.1)
    return False
