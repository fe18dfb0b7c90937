"""The models that a predictor keeps, and what they say about clients' graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedcover.models import Weights
from fedcover.training.forward import forward
from fedcover.training.plan import PartyGraph, Plan

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


def planned(plan: Plan) -> Plan:
    """The plan without what training alone needs."""
    return Plan(**{name: getattr(plan, name) for name in PLANNED})


def outputs(
    models: Sequence[Model], clients: Sequence[PartyGraph]
) -> list[list[NDArray[np.float32]]]:
    """What every model says about every client's nodes, generated ones included: logits."""
    return [
        [
            logits + prior.astype(np.float32)
            for logits, prior in zip(
                forward(clients, model.weights, model.plan), model.prior, strict=True
            )
        ]
        for model in models
    ]
