from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedcover.conformal import (
    SCORES,
    RapsConstants,
    aps,
    aps_det,
    calibrate,
    lac,
    prediction_sets,
    raps,
    score,
    true_scores,
)
from fedcover.errors import DataError, UsageError

PROBS = np.array([[0.5, 0.125, 0.375], [0.25, 0.25, 0.5]])
U = np.array([0.5, 0.25])
CONSTANTS = RapsConstants(nu=0.5, k_reg=1)


@st.composite
def cases(draw):
    seed, n, labels = (
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(1, 20)),
        draw(st.integers(1, 8)),
    )
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(labels, draw(st.sampled_from([0.05, 0.5, 5.0]))), size=n)
    return probs.astype(draw(st.sampled_from([np.float32, np.float64]))), rng.random(n), rng


def test_by_hand():
    np.testing.assert_array_equal(lac(PROBS), [[0.5, 0.875, 0.625], [0.75, 0.75, 0.5]])
    # Node 1's two equal labels: the smaller index comes first.
    np.testing.assert_array_equal(aps_det(PROBS), [[0.5, 1.0, 0.875], [0.75, 1.0, 0.5]])
    np.testing.assert_array_equal(aps(PROBS, U), [[0.25, 0.9375, 0.6875], [0.6875, 0.9375, 0.375]])
    np.testing.assert_array_equal(
        raps(PROBS, U, nu=0.5, k_reg=1), [[0.25, 1.9375, 1.1875], [1.1875, 1.9375, 0.375]]
    )
    np.testing.assert_array_equal(
        raps(PROBS, U, nu=0.5, k_reg=2), [[0.25, 1.4375, 0.6875], [0.6875, 1.4375, 0.375]]
    )


@given(cases())
def test_scores_are_float32_and_no_nan(case):
    probs, u, _ = case
    for name in SCORES:
        result = score(name, probs, u, CONSTANTS)
        assert result.dtype == np.float32
        assert result.shape == probs.shape
        assert not np.isnan(result).any()


@given(cases())
def test_randomised_lies_between_the_mass_before_and_the_mass_with_the_label(case):
    probs, u, _ = case
    assert (aps(probs, u) <= aps_det(probs)).all()
    assert (aps(probs, u) >= aps(probs, np.ones(len(u)))).all()
    np.testing.assert_array_equal(aps(probs, np.zeros(len(u))), aps_det(probs))
    assert (aps(probs, np.ones(len(u))) >= -1e-7).all()


@given(cases())
def test_the_last_label_has_mass_exactly_one_at_every_node(case):
    probs, _, _ = case
    mass = aps_det(probs)
    np.testing.assert_array_equal(mass.max(axis=1), np.float32(1.0))
    last = np.argsort(-probs, axis=1, kind="stable")[:, -1]
    np.testing.assert_array_equal(true_scores(mass, last), np.float32(1.0))


@given(cases(), st.floats(0.0, 2.0), st.integers(0, 8))
def test_raps_is_aps_plus_the_rank_penalty(case, nu, k_reg):
    probs, u, _ = case
    np.testing.assert_array_equal(raps(probs, u, nu=0.0, k_reg=k_reg), aps(probs, u))
    rank = np.argsort(np.argsort(-probs, axis=1, kind="stable"), axis=1) + 1
    np.testing.assert_allclose(
        raps(probs, u, nu, k_reg) - aps(probs, u).astype(float),
        nu * np.maximum(rank - k_reg, 0),
        rtol=1e-6,
        atol=1e-6,
    )


@given(cases())
def test_permuting_labels_permutes_scores_bit_for_bit(case):
    probs, u, rng = case
    # Equal labels are told apart by index, rightly; this is about the others.
    assume(all(len(set(row)) == len(row) for row in probs))
    order = rng.permutation(probs.shape[1])
    for name in SCORES:
        whole, permuted = (score(name, p, u, CONSTANTS) for p in (probs, probs[:, order]))
        np.testing.assert_array_equal(permuted, whole[:, order])


@given(cases())
def test_a_node_is_scored_by_itself(case):
    probs, u, _ = case
    for name in SCORES:
        alone = [score(name, probs[[i]], u[[i]], CONSTANTS) for i in range(len(u))]
        np.testing.assert_array_equal(score(name, probs, u, CONSTANTS), np.concatenate(alone))


@given(cases())
def test_sets_are_nested_in_alpha(case):
    probs, u, rng = case
    labels = rng.integers(0, probs.shape[1], len(u))
    for name in SCORES:
        scores = score(name, probs, u, CONSTANTS)
        sets = [
            prediction_sets(scores, calibrate([true_scores(scores, labels)], alpha).q_hat)
            for alpha in (0.5, 0.2, 0.1, 0.05)
        ]
        assert all((small <= large).all() for small, large in pairwise(sets))


def test_equal_probabilities_rank_by_index():
    # Two values in turn, many labels: an unstable sort would keep the order of a short row.
    twos = np.tile([1.0, 3.0], 32)[None, :] / 128
    expected = np.empty(64)
    expected[1::2] = np.arange(1, 33) * 3 / 128
    expected[0::2] = (96 + np.arange(1, 33)) / 128
    np.testing.assert_array_equal(aps_det(twos), [expected])


def test_rows_that_sum_to_nearly_one_are_taken_as_shares():
    probs = np.array([[0.5, 0.4995], [0.25, 0.7505]])
    np.testing.assert_array_equal(aps_det(probs).max(axis=1), [1.0, 1.0])


def test_no_nodes_no_scores():
    for name in SCORES:
        assert score(name, np.empty((0, 3)), np.empty(0), CONSTANTS).shape == (0, 3)


def test_true_scores_picks_the_labels_column():
    np.testing.assert_array_equal(true_scores(lac(PROBS), [2, 0]), [0.625, 0.75])


def test_every_score_ties_where_the_model_saturates():
    probs = np.array([[1 - 2e-12, 1e-12, 1e-12], [1.0, 0.0, 0.0]])
    for dtype, top_ties in ((np.float64, {"aps-det"}), (np.float32, {"aps-det", "lac"})):
        for name in SCORES:
            scores = score(name, probs.astype(dtype), [0.25, 0.75], CONSTANTS)
            np.testing.assert_array_equal(scores[0, 1:], scores[1, 1:])
            assert (scores[0, 0] == scores[1, 0]) == (name in top_ties)


def test_registry():
    assert set(SCORES) == {"lac", "aps", "aps-det", "raps"}
    assert [name for name, entry in SCORES.items() if entry.ties] == ["aps-det"]
    np.testing.assert_array_equal(score("lac", PROBS), lac(PROBS))
    np.testing.assert_array_equal(score("aps", PROBS, U), aps(PROBS, U))
    np.testing.assert_array_equal(score("aps-det", PROBS), aps_det(PROBS))
    np.testing.assert_array_equal(score("raps", PROBS, U, CONSTANTS), raps(PROBS, U, 0.5, 1))


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([0.5, 0.5], r"probs has shape \(2,\)"),
        (np.empty((3, 0)), r"probs has shape \(3, 0\)"),
        ([[0.5, 0.5], [np.nan, 1.0]], r"probs\[1, 0\] is nan"),
        ([[0.5, 0.5], [1.5, -0.5]], r"probs\[1, 0\] is 1\.5"),
        ([[1.0, 0.0], [0.0, 1.0], [0.4, 0.4]], r"probs\[2\] sums to 0\.8"),
        ([[0.0, 0.0]], r"probs\[0\] sums to 0"),
    ],
)
def test_bad_probabilities_are_refused_with_their_place(probs, message):
    for name in SCORES:
        with pytest.raises(DataError, match=message):
            score(name, probs, np.full(len(probs), 0.5), CONSTANTS)


def test_bad_arguments_are_refused():
    with pytest.raises(DataError, match=r"u has shape \(3,\); it must be \(2,\)"):
        aps(PROBS, np.zeros(3))
    with pytest.raises(DataError, match=r"u\[1\] is 1\.5"):
        aps(PROBS, [0.0, 1.5])
    with pytest.raises(UsageError, match="nu is -1"):
        raps(PROBS, U, nu=-1, k_reg=1)
    with pytest.raises(UsageError, match="k_reg is -1"):
        raps(PROBS, U, nu=0.1, k_reg=-1)
    with pytest.raises(UsageError, match=r"score is 'saps'; .* lac, aps, aps-det, raps"):
        score("saps", PROBS, U)
    with pytest.raises(UsageError, match="u is missing"):
        score("aps", PROBS)
    with pytest.raises(UsageError, match="constants are missing"):
        score("raps", PROBS, U)
    with pytest.raises(DataError, match=r"labels\[1\] is 3; it must lie in 0 … 2"):
        true_scores(lac(PROBS), [0, 3])
    with pytest.raises(DataError, match="labels has type float64"):
        true_scores(lac(PROBS), [0.0, 1.0])
    with pytest.raises(DataError, match=r"labels has shape \(1,\)"):
        true_scores(lac(PROBS), [0])
