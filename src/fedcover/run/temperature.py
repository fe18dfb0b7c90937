"""The temperature of a model's logits, found by asking the clients about validation nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.experiment.methods import Repetition
from fedcover.federation import Engine
from fedcover.federation.ledger import Ledger
from fedcover.graphs.splits import Role

WAYS = {
    "pooled": (conformal.pooled_server, conformal.pooled_client),
    "averaged": (conformal.averaged_server, conformal.averaged_client),
}


def fit(
    way: str,
    logits: NDArray[np.float32],
    repetition: Repetition,
    engine: Engine,
    ledger: Ledger,
    purpose: str = "",
) -> float:
    """One temperature for all clients; ``none`` asks nobody and is 1."""
    if way == "none":
        return 1.0
    server, client = WAYS[way]
    y = repetition.graph.y.numpy()
    columns = [repetition.by_client(Role.VALID, values) for values in (logits, y)]
    temperature = engine.ask(
        server(),
        client,
        list(zip(*columns, strict=True)),
        kind=f"temperature{purpose}",
        on_message=ledger.listener(),
    )
    clients = repetition.partition.clients
    ledger.announce(f"fitted temperature{purpose}", np.array([temperature]), clients)
    return temperature
