import numpy as np
import pytest

from fedcover.conformal import (
    GroupMetrics,
    by_group,
    class_coverage_gap,
    coverage,
    covered,
    empty_rate,
    mean_set_size,
    singleton_hits,
    singleton_rate,
    size_stratified,
)
from fedcover.errors import DataError

SETS = np.array(
    [
        [1, 0, 0],  # label 0: a hit
        [0, 1, 0],  # label 0: a miss
        [1, 1, 0],  # label 1: a hit
        [0, 0, 0],  # label 2: empty
        [1, 1, 1],  # label 2: a hit
    ],
    dtype=bool,
)
LABELS = np.array([0, 0, 1, 2, 2])
CLIENTS = np.array([0, 0, 0, 3, 3])


def test_overall_by_hand():
    np.testing.assert_array_equal(covered(SETS, LABELS), [True, False, True, False, True])
    assert coverage(SETS, LABELS) == 3 / 5
    assert mean_set_size(SETS) == 7 / 5
    assert singleton_rate(SETS) == 2 / 5
    assert empty_rate(SETS) == 1 / 5
    assert singleton_hits(SETS, LABELS) == 1 / 2


def test_by_group_by_hand():
    result = by_group(SETS, LABELS, CLIENTS)
    np.testing.assert_array_equal(result.n, [3, 0, 0, 2])
    np.testing.assert_array_equal(result.coverage, [2 / 3, np.nan, np.nan, 1 / 2])
    np.testing.assert_array_equal(result.size, [4 / 3, np.nan, np.nan, 3 / 2])
    assert result.worst() == 1 / 2


def test_class_gap_is_what_the_worst_class_lacks():
    by_class = by_group(SETS, LABELS, LABELS)
    np.testing.assert_array_equal(by_class.coverage, [1 / 2, 1, 1 / 2])
    assert class_coverage_gap(by_class, alpha=0.1) == pytest.approx(0.9 - 0.5)
    perfect = GroupMetrics(np.ones(2), np.array([1.0, 0.95]), np.ones(2))
    assert class_coverage_gap(perfect, alpha=0.1) == pytest.approx(-0.05)


def test_size_stratified_by_hand():
    result = size_stratified(SETS, LABELS)
    np.testing.assert_array_equal(result.n, [1, 2, 1, 1])
    np.testing.assert_array_equal(result.coverage, [0, 1 / 2, 1, 1])
    np.testing.assert_array_equal(result.size, [0, 1, 2, 3])
    assert result.worst() == 0


def test_nothing_has_no_mean():
    nothing, no_labels = np.empty((0, 3), bool), np.empty(0, int)
    for value in (
        coverage(nothing, no_labels),
        mean_set_size(nothing),
        singleton_rate(nothing),
        empty_rate(nothing),
        singleton_hits(nothing, no_labels),
        singleton_hits(SETS[2:], LABELS[2:]),
        by_group(nothing, no_labels, no_labels).worst(),
    ):
        assert np.isnan(value)


def test_bad_groups_and_labels_are_refused():
    with pytest.raises(DataError, match=r"groups\[1\] is -1"):
        by_group(SETS, LABELS, [0, -1, 0, 0, 0])
    with pytest.raises(DataError, match=r"groups\[4\] is 2; it must lie in 0 … 1"):
        by_group(SETS, LABELS, [0, 0, 0, 0, 2], n_groups=2)
    with pytest.raises(DataError, match=r"labels has shape \(4,\)"):
        coverage(SETS, LABELS[:4])
