"""The recipe part ``+mix``: three models' logits in, those of their mixture out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.config import Config
from fedcover.experiment import temperature
from fedcover.experiment.methods import Repetition
from fedcover.federation import Engine
from fedcover.federation.ledger import Ledger
from fedcover.graphs.splits import Role
from fedcover.personal import mixture


def mix(
    repetition: Repetition,
    logits: Mapping[str, NDArray[np.float32]],
    config: Config,
    engine: Engine,
    ledger: Ledger,
) -> tuple[NDArray[np.float32], list[list[float]], dict[str, float]]:
    """The logarithm of the mixed probabilities of all nodes, each client's weights, and each
    model's temperature.

    ``logits`` are those of the shared, the tuned and the local models, by these names.

    Every model is brought to its own temperature first, so that a weight is not spent on
    correcting confidence.
    """
    y, client = repetition.graph.y.numpy(), repetition.partition.client
    fitted = {
        name: temperature.fit(config.temperature, own, repetition, engine, ledger, f", {name}")
        for name, own in logits.items()
    }
    probs = [conformal.softmax(own, fitted[name]) for name, own in logits.items()]
    true = np.stack([p[np.arange(len(y)), y] for p in probs], axis=1)
    validation, grid = repetition.by_client(Role.VALID, true), mixture.simplex(len(probs))
    mean_losses = engine.ask(
        mixture.mixture_server(),
        mixture.mixture_client(grid),
        validation,
        kind="mixture losses",
        on_message=ledger.listener(),
    )
    ledger.announce("mean mixture losses", mean_losses, repetition.partition.clients)
    shrinkage = config.personal.shrinkage
    weights = np.stack(
        [mixture.choose_weights(own, mean_losses, grid, shrinkage) for own in validation]
    )
    mixed = mixture.mixed(probs, weights[client])
    final = np.log(np.maximum(mixed, mixture.TINY)).astype(np.float32)
    return final, weights.tolist(), fitted
