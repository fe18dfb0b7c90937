"""Generated nodes after a client's own: what is kept, and how their features are trimmed."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.party.augment import mean_entries, trimmed


def test_trimming_keeps_the_largest_entries_with_their_values():
    rows = np.array([[0.1, -0.9, 0.3, 0.0], [1.0, 0.0, 0.0, 0.0], [0.2, 0.2, 0.2, 0.5]])
    kept = trimmed(rows, 2)
    assert sp.issparse(kept)
    assert kept[[0, 1]].toarray().tolist() == [[0, -0.9, 0.3, 0], [1, 0, 0, 0]]
    assert kept[[1]].nnz == 1  # a zero is not stored
    assert kept[[2]].toarray()[0, 3] == 0.5
    assert kept[[2]].nnz == 2  # of equal entries as many as there is room for
    assert trimmed(rows, 9).toarray().tolist() == rows.tolist()


@settings(deadline=None)
@given(st.integers(0, 6), st.integers(1, 9), st.integers(1, 10), st.integers(0, 99))
def test_no_dropped_entry_is_larger_than_a_kept_one(height, width, count, seed):
    rows = np.random.default_rng(seed).normal(size=(height, width)).astype(np.float32)
    kept = trimmed(rows, count)
    assert kept.shape == rows.shape
    assert kept.dtype == rows.dtype
    for row, sparse in zip(rows, kept.toarray(), strict=True):
        assert np.count_nonzero(sparse) == min(count, width)
        np.testing.assert_array_equal(sparse[sparse != 0], row[sparse != 0])
        assert np.abs(row[sparse != 0]).min() >= np.abs(row[sparse == 0]).max(initial=0)


@pytest.mark.parametrize(("entries", "mean"), [([2, 3, 3], 3), ([0, 0, 1], 1), ([1, 1, 2], 1)])
def test_the_mean_number_of_entries_is_one_at_least(entries, mean):
    x = sp.csr_array([[float(k < n) for k in range(4)] for n in entries])
    assert mean_entries(x) == mean
