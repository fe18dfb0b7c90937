"""Dropout masks that depend only on (seed, client, step, node, unit).

They come from a counter-based hash (splitmix64), not from a generator's stream: a client draws the
same mask alone, in a stack of a thousand clients, or on another machine.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedcover.hashing import splitmix

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LANES = 4  # one hashed word serves four units, sixteen bits each
_ROWS = 4096  # hashed at a time: what stays in a core's cache is hashed several times faster


class Dropout:
    """Masks for a fixed set of hidden rows, each the row of one client's node."""

    def __init__(
        self,
        seeds: NDArray[np.int64],
        clients: NDArray[np.int64],
        nodes: NDArray[np.int64],
        *,
        units: int,
        rate: float,
    ) -> None:
        words = -(-units // _LANES)
        key = seeds.astype(np.uint64) << np.uint64(32) | clients.astype(np.uint64)
        lane = np.arange(words, dtype=np.uint64)
        counter = nodes.astype(np.uint64)[:, None] * np.uint64(words) + lane
        self._base = splitmix(key * _GOLDEN)[:, None] + counter * _GOLDEN
        self._units = units
        self._threshold = np.uint16(min(round(rate * 2**16), 2**16 - 1))

    def kept(self, step: int, rows: slice = slice(None)) -> NDArray[np.bool_]:
        """False where a unit is dropped in this step (rows × units)."""
        offset = splitmix(np.array([step + 1], dtype=np.uint64) * _GOLDEN)
        words: NDArray[np.uint64] = np.add(self._base[rows], offset)
        return splitmix(words).view(np.uint16)[:, : self._units] >= self._threshold

    def apply_(self, hidden: Tensor, step: int) -> None:
        """Set the dropped units to zero, in place, without rescaling the others."""
        rows = hidden.numpy()  # shares memory; numpy's mixed product is much faster than torch's
        for first in range(0, len(rows), _ROWS):
            part = slice(first, first + _ROWS)
            np.multiply(rows[part], self.kept(step, part), out=rows[part])
