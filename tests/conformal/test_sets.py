import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.conformal import (
    SCORES,
    RapsConstants,
    add_top_label,
    aps_det,
    crossing_sets,
    prediction_sets,
    score,
)
from fedcover.errors import DataError

PROBS = np.array([[0.5, 0.125, 0.375], [0.25, 0.25, 0.5]])  # V: .5 1 .875 | .75 1 .5


def test_a_label_is_in_exactly_if_its_score_reaches_no_higher_than_q_hat():
    sets = prediction_sets([[0.1, 0.2], [0.3, 0.2]], np.float32(0.2))
    np.testing.assert_array_equal(sets, [[True, True], [False, True]])
    assert sets.dtype == np.bool_


def test_comparison_is_in_float32():
    # 0.1 rounded to float32 is above the double 0.1; both sides round alike.
    assert prediction_sets(np.array([[0.1]], np.float32), 0.1).all()
    assert prediction_sets(np.array([[0.1]]), float(np.float32(0.1))).all()
    just_below = float(np.nextafter(np.float32(0.1), np.float32(0)))
    assert not prediction_sets(np.array([[0.1]]), just_below).any()


def test_infinite_thresholds():
    scores = [[0.0, np.inf, -np.inf]]
    np.testing.assert_array_equal(prediction_sets(scores, np.inf), [[True, True, True]])
    np.testing.assert_array_equal(prediction_sets(scores, -np.inf), [[False, False, True]])


def test_top_label_is_added_to_empty_sets_only():
    sets = np.array([[False, False, False], [True, False, False]])
    np.testing.assert_array_equal(
        add_top_label(sets, PROBS), [[True, False, False], [True, False, False]]
    )
    assert not sets[0].any()  # the argument is left alone


@pytest.mark.parametrize("name", SCORES)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.01, 0.5, 10.0]),
    st.one_of(st.floats(-0.1, 1.5), st.sampled_from([-np.inf, np.inf])),
)
def test_top_score_of_minus_infinity_is_the_same(name, seed, concentration, q_hat):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(4, concentration), size=6)
    probs[0], probs[1] = 0.25, [0.0, 1.0, 0.0, 0.0]  # all alike, and saturated
    scores = score(name, probs, rng.choice([0.0, 0.3, 1.0], size=6), RapsConstants(0.1, 2))
    added = add_top_label(prediction_sets(scores, q_hat), probs)
    scores[np.arange(6), probs.argmax(axis=1)] = -np.inf
    np.testing.assert_array_equal(prediction_sets(scores, q_hat), added)


@pytest.mark.parametrize(
    ("q_hat", "expected"),
    [
        (0.4, [[1, 0, 0], [0, 0, 1]]),
        (0.5, [[1, 0, 0], [0, 0, 1]]),  # V meets q̂ exactly
        (0.6, [[1, 0, 1], [1, 0, 1]]),
        (0.8, [[1, 0, 1], [1, 1, 1]]),
        (1.0, [[1, 1, 1], [1, 1, 1]]),
        (np.inf, [[1, 1, 1], [1, 1, 1]]),
        (-np.inf, [[1, 0, 0], [0, 0, 1]]),
    ],
)
def test_crossing_sets_by_hand(q_hat, expected):
    np.testing.assert_array_equal(crossing_sets(PROBS, q_hat), np.array(expected, bool))


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0, exclude_min=True))
def test_crossing_follows_the_papers_definition(seed, q_hat):
    probs = np.random.default_rng(seed).dirichlet(np.full(5, 0.5), size=4)
    mass, sets = aps_det(probs), crossing_sets(probs, q_hat)
    plain = prediction_sets(mass, q_hat)
    for row in range(4):
        order = np.argsort(-probs[row], kind="stable")
        k_star = 1 + int(np.argmax(mass[row, order] >= np.float32(q_hat)))
        assert set(np.flatnonzero(sets[row])) == set(order[:k_star])
        assert sets[row].sum() - plain[row].sum() <= 1  # the crossing label at most


def test_nan_threshold_is_refused():
    with pytest.raises(DataError, match="q_hat is nan"):
        prediction_sets([[0.0]], np.nan)
    with pytest.raises(DataError, match="q_hat is nan"):
        crossing_sets(PROBS, np.nan)
