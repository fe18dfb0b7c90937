"""A model's weights as the arrays of a message, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message
from fedcover.models import Weights

WEIGHTS = ("first", "first_bias", "second", "second_bias")
"""What the tensors of a model are called when they travel."""


def arrays_of(weights: Weights, prefix: str = "") -> dict[str, NDArray[Any]]:
    """The four tensors by name."""
    return {
        f"{prefix}{name}": tensor.numpy()
        for name, tensor in zip(WEIGHTS, weights.tensors(), strict=True)
    }


def weights_of(arrays: Message, prefix: str = "") -> Weights | None:
    """The weights of a message; None if it has none."""
    if f"{prefix}{WEIGHTS[0]}" not in arrays:
        return None
    return Weights(*(torch.from_numpy(np.array(arrays[f"{prefix}{name}"])) for name in WEIGHTS))
