"""Trained models applied: one forward pass over all clients, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedcover.models import Weights
from fedcover.training.averaging import Averaging
from fedcover.training.plan import Federation, PartyGraph, Plan
from fedcover.training.receptive_field import Field
from fedcover.training.stack import Stack


@torch.no_grad()
def forward(
    clients: Sequence[PartyGraph], weights: Sequence[Weights], plan: Plan
) -> list[NDArray[np.float32]]:
    """The logits of every client's nodes under its own weights, as training computes them."""
    stack = Stack([Federation([client], 0, first=k) for k, client in enumerate(clients)], plan)
    averaging = Averaging(stack)
    local = averaging.broadcast(averaging.shared([one.to(plan.dtype) for one in weights]))
    rows = Field(stack, np.arange(len(stack.y))).logits(local).numpy()
    by_place = np.split(rows, stack.starts[1:-1])
    return [by_place[place] for place in np.argsort(stack.federation_of)]
