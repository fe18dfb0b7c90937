"""Sparse matrices that multiply dense ones quickly on a CPU."""

from __future__ import annotations

import scipy.sparse as sp
import torch
from torch import Tensor


class Bag:
    """A constant sparse matrix; calling it with a dense one gives their product.

    PyTorch's ``embedding_bag`` is a weighted sum of rows, which is what a CSR product is. It is
    faster than the CSR kernels (see ``benchmarks/``), and a row is summed in one fixed order.
    """

    def __init__(self, matrix: sp.csr_array, dtype: torch.dtype = torch.float32) -> None:
        self._columns = torch.from_numpy(matrix.indices).long()
        self._starts = torch.from_numpy(matrix.indptr).long()
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
