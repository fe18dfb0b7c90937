import numpy as np
import pytest
from scipy.stats import binomtest

from fedcover.conformal import GroupMetrics, coverage_interval, worst_slab_coverage
from fedcover.errors import DataError


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(("hits", "n"), [(0, 7), (7, 7), (1, 9), (45, 50), (1800, 2000)])
def test_the_interval_is_clopper_and_pearson_s(hits, n, level):
    oracle = binomtest(hits, n).proportion_ci(level, "exact")
    np.testing.assert_allclose(coverage_interval(hits, n, level), oracle, atol=1e-9)


def test_an_interval_of_nothing_is_everything_and_nonsense_is_refused():
    assert coverage_interval(0, 0) == (0.0, 1.0)
    for wrong in ((3, 2), (-1, 2), (1, 2, 1.0)):
        with pytest.raises(DataError, match="hits must lie in 0"):
            coverage_interval(*wrong)


def test_the_worst_group_is_named():
    nan = float("nan")
    assert GroupMetrics(*np.array([[1, 0, 2, 3], [0.9, nan, 0.7, 0.7]]), None).worst_group() == 2
    assert GroupMetrics(np.zeros(1), np.array([nan]), np.array([nan])).worst_group() is None


def test_a_slab_that_is_covered_less_is_found():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6000, 3))
    inside = x[:, 0] > 1.0  # a sixth of the nodes
    covered = rng.random(6000) < np.where(inside, 0.5, 0.98)
    assert 0.4 < worst_slab_coverage(x, covered, rng) < 0.65


def test_where_coverage_is_even_the_minimum_is_not_biased():
    rng = np.random.default_rng(1)
    found = [
        worst_slab_coverage(rng.standard_normal((500, 3)), rng.random(500) < 0.9, rng, 0.1, 100)
        for _ in range(60)
    ]
    assert abs(np.mean(found) - 0.9) < 0.025  # the minimum on the first half is some 0.65


def test_slabs_of_too_few_nodes_and_of_nonsense():
    rng = np.random.default_rng(2)
    assert np.isnan(worst_slab_coverage(np.zeros((1, 2)), [True], rng))
    for covered, delta in (([True], 0.1), ([True, False], 0.0)):
        with pytest.raises(DataError, match="covered has shape"):
            worst_slab_coverage(np.zeros((2, 2)), covered, rng, delta)
