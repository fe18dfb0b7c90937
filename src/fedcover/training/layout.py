"""Products of many clients at once: padded batches of dense rows, and quick sparse matrices."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.training.plan import Index


def distinct(values: NDArray[np.integer], below: int) -> tuple[Index, Index]:
    """The different numbers among ``values`` (0 … below − 1), ascending, and each one's place.

    A table of all numbers beats sorting millions of edges, but not the few of a mini-batch.
    """
    if 16 * len(values) < below:
        found, place = np.unique(values, return_inverse=True)
        return found.astype(np.int64), place.astype(np.int64)
    seen = np.zeros(below, dtype=bool)
    seen[values] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[values]


@dataclass(frozen=True)
class Block:
    """Clients ``start:stop`` with ``width`` rows each, from flat row ``offset`` on."""

    start: int
    stop: int
    width: int
    offset: int

    @property
    def clients(self) -> slice:
        """The block's clients."""
        return slice(self.start, self.stop)

    def batch(self, flat: Tensor) -> Tensor:
        """The block's rows of a flat tensor, as (clients, width, columns)."""
        clients = self.stop - self.start
        rows = flat[self.offset : self.offset + clients * self.width]
        return rows.view(clients, self.width, flat.shape[1])


class Layout:
    """Where each client's rows stand; at most about a fifth of a block is padding."""

    def __init__(self, counts: Index) -> None:
        self.blocks: list[Block] = []
        self.rows = 0
        start, clients = 0, len(counts)
        while start < clients:
            stop, width, filled = start, 1, 0
            while stop < clients:
                wider, fuller = max(width, int(counts[stop])), filled + int(counts[stop])
                if stop > start and (stop + 1 - start) * wider > 1.25 * fuller + 64:
                    break
                stop, width, filled = stop + 1, wider, fuller
            self.blocks.append(Block(start, stop, width, self.rows))
            self.rows += (stop - start) * width
            start = stop
        self._first_row = np.concatenate(
            [b.offset + b.width * np.arange(b.stop - b.start) for b in self.blocks]
        )
        self._first_item = np.cumsum(counts) - counts

    def places(self, clients: Index) -> Index:
        """The flat row of each item, given its client; the items are sorted by client."""
        within = np.arange(len(clients)) - self._first_item[clients]
        return self._first_row[clients] + within


class Bag:
    """A constant sparse matrix; calling it with a dense one gives their product.

    PyTorch's ``embedding_bag`` is a weighted sum of rows, which is what a CSR product is. It is
    faster than the CSR kernels (see ``benchmarks/``), and a row is summed in one fixed order.
    """

    def __init__(self, matrix: sp.csr_array, dtype: torch.dtype = torch.float32) -> None:
        # Indices of 32 bits as scipy has them, which take half the memory.
        self._columns, self._starts = map(torch.from_numpy, (matrix.indices, matrix.indptr))
        self._values = torch.from_numpy(matrix.data).to(dtype)

    def __call__(self, dense: Tensor) -> Tensor:
        """The product with a dense matrix."""
        product: Tensor = torch.embedding_bag(
            dense,
            self._columns,
            self._starts,
            mode=0,
            per_sample_weights=self._values,
            include_last_offset=True,
        )[0]
        return product


class TwoWay:
    """A sparse matrix kept with its transpose, so that nothing is sorted again while training."""

    def __init__(self, matrix: sp.csr_array, dtype: torch.dtype, gradient: bool) -> None:
        self.forward = Bag(matrix, dtype)
        if gradient:
            self.backward = Bag(matrix.T.tocsr(), dtype)
