"""The models that a predictor keeps, and what they say about clients' graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedcover.federation import Client, Plan
from fedcover.federation.forward import forward
from fedcover.models import Weights
from fedcover.personal.correction import on_outputs

PLANNED = ("model", "classes", "hidden", "unit_features", "batch_size")
"""What of a plan matters after training."""


@dataclass(frozen=True)
class Generated:
    """A client's generated neighbours: their features, and (2, m) which is linked to which node,
    the latter by its name's hash."""

    features: sparse.csr_array
    source: NDArray[np.int64]
    target: NDArray[np.uint64]
    weight: float


@dataclass(frozen=True)
class Model:
    """One kind of model of a recipe: its plan, and the weights of every client."""

    plan: Plan
    weights: Sequence[Weights]
    prior: NDArray[np.float64]  # clients × labels, added to the logits
    temperature: float = 1.0  # before it is mixed with others
    corrects: bool = False  # whether it looks at the model before it, and adds to its logits


def planned(plan: Plan) -> Plan:
    """The plan without what training alone needs."""
    return Plan(**{name: getattr(plan, name) for name in PLANNED})


def outputs(models: Sequence[Model], clients: Sequence[Client]) -> list[list[NDArray[np.float32]]]:
    """What every model says about every client's nodes, generated ones included: logits."""
    said: list[list[NDArray[np.float32]]] = []
    for model in models:
        if model.corrects:
            shown = [on_outputs(*pair) for pair in zip(clients, said[-1], strict=True)]
        elif model.prior.any():
            shown = [
                replace(client, offset=np.tile(prior, (client.nodes, 1)))
                for client, prior in zip(clients, model.prior, strict=True)
            ]
        else:
            shown = list(clients)
        said.append(forward(shown, model.weights, model.plan))
    return said
