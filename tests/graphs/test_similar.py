from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.metrics.pairwise import cosine_similarity

from fedcover.errors import DataError, UsageError
from fedcover.graphs.similar import cosines, similar_nodes

FORMS = [np.asarray, sparse.csr_array]


def by_hand(counts, k):
    """Squared cosines as fractions, so that equal ones are equal; positive ones only."""
    rows = [[int(v) for v in row] for row in counts]
    norm2 = [sum(v * v for v in row) for row in rows]
    result = np.full((len(rows), k), -1)
    for i, mine in enumerate(rows):
        dots = [sum(a * b for a, b in zip(mine, theirs, strict=True)) for theirs in rows]
        others = [j for j in range(len(rows)) if j != i and dots[j] > 0]
        others.sort(key=lambda j: (-Fraction(dots[j] ** 2, norm2[j]), j))
        result[i, : len(others[:k])] = others[:k]
    return result


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None)
@given(
    arrays(np.int64, st.tuples(st.integers(0, 9), st.integers(0, 5)), elements=st.integers(0, 1)),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_binary_features_are_compared_exactly(form, binary, k, block, seed):
    expected = by_hand(binary, k)
    np.testing.assert_array_equal(
        similar_nodes(form(binary.astype(np.float32)), k, block), expected
    )
    # A factor for every node (such as one over its number of words) changes no cosine.
    factor = np.random.default_rng(seed).random((len(binary), 1)) + 0.1
    scaled = form((binary * factor).astype(np.float32))
    np.testing.assert_array_equal(similar_nodes(scaled, k, block), expected)


@pytest.mark.parametrize("form", FORMS)
def test_against_scikit_learn(form):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(700, 30)) * (rng.random((700, 30)) < 0.4)
    x[[5, 80]] = 0.0
    nodes = similar_nodes(form(x), 8)
    truth = cosine_similarity(x)
    np.fill_diagonal(truth, -1.0)
    np.testing.assert_array_equal(nodes[5], -1)
    assert not np.isin(nodes, [5, 80]).any()
    held = np.delete(np.arange(700), [5, 80])
    np.testing.assert_array_equal(nodes[held], np.argsort(-truth[held], axis=1)[:, :8])
    picked = np.take_along_axis(truth[held], nodes[held], axis=1)
    np.testing.assert_allclose(cosines(form(x), nodes)[held], picked, atol=1e-6)
    np.testing.assert_array_equal(cosines(form(x), nodes)[5], 0.0)


@pytest.mark.parametrize("form", FORMS)
def test_small_clients_and_nodes_without_features(form):
    x = form(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]))
    np.testing.assert_array_equal(
        similar_nodes(x, 3),
        # 3 shares nothing with anyone, 4 points the other way, 2 has no features.
        [[1, -1, -1], [0, -1, -1], [-1, -1, -1], [-1, -1, -1], [-1, -1, -1]],
    )
    np.testing.assert_array_equal(cosines(x, similar_nodes(x, 3))[:2], [[1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(similar_nodes(form(np.ones((1, 2))), 2), [[-1, -1]])
    assert similar_nodes(form(np.ones((0, 2))), 2).shape == (0, 2)


@pytest.mark.parametrize("form", FORMS)
def test_equal_nodes_go_by_position_in_every_block(form):
    nodes = similar_nodes(form(np.ones((600, 3))), 2)
    np.testing.assert_array_equal(nodes[:3], [[1, 2], [0, 2], [0, 1]])
    np.testing.assert_array_equal(nodes[3:], np.tile([0, 1], (597, 1)))


def test_cosines_can_be_weights():
    x = np.array([[1.0, 0.0], [-1.0, 1e-3], [0.6, 0.8]])
    nodes = np.array([[1, 2], [2, -1], [0, 1]])  # also pairs that similar_nodes would not give
    np.testing.assert_allclose(cosines(x, nodes), [[0, 0.6], [0, 0], [0.6, 0]], atol=1e-6)


def test_twenty_are_taken_unless_told():
    assert similar_nodes(np.ones((30, 2))).shape == (30, 20)


def test_a_block_changes_nothing():
    x = (np.random.default_rng(1).random((300, 40)) < 0.2).astype(np.float32)
    whole = similar_nodes(x, 6, block=300)
    for block in (1, 7, 256):
        np.testing.assert_array_equal(similar_nodes(x, 6, block=block), whole)


def test_bad_arguments_are_refused():
    for k in (0, 1.5, True):
        with pytest.raises(UsageError, match=f"k is {k}, but must be a whole number of 1 or more"):
            similar_nodes(np.ones((3, 2)), k)
    with pytest.raises(DataError, match=r"x has shape \(3,\); it must be \(nodes, features\)"):
        similar_nodes(np.ones(3), 1)
    for form in FORMS:
        with pytest.raises(DataError, match="x holds a value that is not finite"):
            similar_nodes(form(np.array([[1.0, np.nan]])), 1)
