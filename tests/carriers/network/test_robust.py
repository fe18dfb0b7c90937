"""Averages that a few hostile sites cannot move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy import stats

from fedcover.carriers.messages import AVERAGES, TRIMMED, trimmed

values = st.integers(1, 11).flatmap(
    lambda sites: arrays(np.float32, (sites, 3), elements=st.floats(-100, 100, width=32))
)


@given(values)
def test_trimmed_is_scipys(rows: np.ndarray) -> None:
    cut = max(round(TRIMMED * len(rows)), 1) / len(rows) if len(rows) > 2 else 0.0
    expected = stats.trim_mean(rows.astype(np.float64), cut + 1e-9, axis=0)
    assert_allclose(trimmed(list(rows)), expected, rtol=1e-5, atol=1e-5)


@given(values)
def test_median_is_numpys(rows: np.ndarray) -> None:
    assert_allclose(AVERAGES["median"](list(rows)), np.median(rows, axis=0))


@pytest.mark.parametrize("name", ["trimmed", "median"])
def test_three_of_ten_cannot_move_it_beyond_the_honest(name: str) -> None:
    rng = np.random.default_rng(0)
    honest = list(rng.normal(size=(7, 50)).astype(np.float32))
    poison = [np.full(50, value, np.float32) for value in (1e6, -1e6, 1e6)]
    found = AVERAGES[name](honest + poison)
    assert (found >= np.min(honest, axis=0)).all()
    assert (found <= np.max(honest, axis=0)).all()
    assert np.abs(np.mean(honest + poison, axis=0)).max() > 1e4
