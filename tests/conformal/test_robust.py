"""A limit on shares, and who is left out: by hand, and by what must hold for any numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover import conformal
from fedcover.errors import DataError

SHARES = st.lists(st.integers(0, 10**6), min_size=1, max_size=8).filter(any)


def test_a_share_above_the_limit_is_cut_and_the_rest_keep_their_proportions() -> None:
    np.testing.assert_allclose(conformal.capped([98, 1, 1], 0.5), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(conformal.capped([6, 3, 1], 0.4), [0.4, 0.4, 0.2])
    np.testing.assert_allclose(conformal.capped([7, 0, 0], 0.5), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(conformal.capped([7, 3], 0.1), [0.5, 0.5])
    claimed = [2, 1, 1]
    assert conformal.capped(claimed, 0.5) is claimed


@given(SHARES, st.floats(0.05, 1))
def test_no_share_is_above_the_limit_and_all_add_up(shares: list[int], most: float) -> None:
    found = np.array(conformal.capped(shares, most), dtype=float)
    found /= found.sum()
    assert found.max() <= max(most, 1 / len(shares)) + 1e-8
    order = np.argsort(shares, kind="stable")
    assert (np.diff(found[order]) >= -1e-12).all()  # who claims more never counts less


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_capped_liar_moves_the_others_coverage_by_no_more_than_its_share(level: float) -> None:
    """Scores all 0: at least 1 − α/(1−s) of the others' nodes are covered."""
    rng = np.random.default_rng(0)
    honest = [rng.random(2000) for _ in range(4)]
    lies = [*honest, np.full(100_000, level)]
    claimed = [2000] * 4 + [100_000]
    plain = conformal.calibrate(lies, 0.1, shares=claimed).q_hat
    limited = conformal.calibrate(lies, 0.1, shares=conformal.capped(claimed, 0.5)).q_hat
    if level == 0.0:
        assert plain == 0.0
        assert 0.78 < limited < 0.82
    else:
        assert plain == limited == 1.0  # larger sets are no broken promise


def histograms(seed: int, honest: int, liars: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    own = [conformal.spread_client([rng.beta(1, 3, 80)], {})["counts"] for _ in range(honest)]
    return np.stack(own + [conformal.spread_client([np.ones(80)], {})["counts"]] * liars)


@given(st.integers(0, 99), st.integers(1, 3), st.permutations(range(8)))
def test_liars_that_are_far_away_are_left_out_whatever_the_order(
    seed: int, liars: int, order: list[int]
) -> None:
    counts = histograms(seed, 8 - liars, liars)
    assert conformal.outliers(counts, 0) == []
    found = conformal.outliers(counts[order], liars)
    assert {order[k] for k in found} == set(range(8 - liars, 8))


def test_who_counts_nothing_is_not_judged_and_half_may_not_lie() -> None:
    counts = histograms(0, 3, 1)
    counts[0] = 0
    assert conformal.outliers(counts, 1) == [3]
    with pytest.raises(DataError, match="robust is 2, which needs more than 4 clients"):
        conformal.outliers(counts, 2)


def test_scores_are_counted_by_twentieths_and_those_outside_at_the_ends() -> None:
    counts = conformal.spread_client([[-1.0, 0.0, 0.05, 0.99, 1.0, 7.0, np.inf]], {})["counts"]
    assert counts[0].tolist() == [2, 1, *[0] * 17, 4]
