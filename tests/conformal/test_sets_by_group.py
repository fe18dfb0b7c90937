"""Sets and their judgement where every node or every label has a threshold of its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.conformal import (
    by_group,
    coverage,
    evaluate_resplits,
    mean_set_size,
    metrics,
    prediction_sets,
    singleton_rate,
)
from fedcover.errors import DataError

SCORES = np.array([[0.1, 0.5], [0.5, 0.1]])


def test_a_threshold_for_each_node_or_each_label():
    per_node = prediction_sets(SCORES, [0.5, 0.2], per="node")
    np.testing.assert_array_equal(per_node, [[True, True], [False, True]])
    per_label = prediction_sets(SCORES, [0.5, 0.2], per="label")
    np.testing.assert_array_equal(per_label, [[True, False], [True, True]])
    np.testing.assert_array_equal(
        prediction_sets(SCORES, [np.inf, -np.inf], per="label"), [[True, False], [True, False]]
    )


@pytest.mark.parametrize(
    ("q_hat", "per", "sentence"),
    [
        ([0.5, 0.2], None, r"q_hat has shape \(2,\); it must be one number, or per must say"),
        ([0.5], "node", r"q_hat has shape \(1,\); it must be \(2,\), one threshold per node"),
        ([0.5, 0.1, 0.2], "label", r"q_hat has shape \(3,\); .* one threshold per label"),
        ([0.5, np.nan], "label", r"q_hat\[1\] is nan"),
    ],
)
def test_thresholds_that_do_not_fit_are_refused(q_hat, per, sentence):
    with pytest.raises(DataError, match=sentence):
        prediction_sets(SCORES, q_hat, per=per)


def draw(seed, n, repeats, labels, groups):
    rng = np.random.default_rng(seed)
    scores = rng.random((n, labels)).round(1).astype(np.float32)  # ties with the thresholds
    choices = [-1.0, 0.0, 0.2, 0.5, 0.5, 0.9, np.inf]
    q_hats = rng.choice(choices, size=(repeats, groups)).astype(np.float32)
    is_test = rng.random((repeats, n)) < 0.6
    is_test[:, 0] = True
    return scores, rng.integers(0, labels, n), q_hats, is_test, rng.integers(0, groups, n)


def means(found, scores, y, q_hats, is_test, per, group):
    """The plain way: build the sets of each re-split and measure them."""
    rows = []
    for q, test in zip(q_hats, is_test, strict=True):
        own = q if per == "label" else q[group[test]]
        sets = prediction_sets(scores[test], own, per=per)
        grouped = by_group(sets, y[test], group[test], int(group.max()) + 1)
        rows.append((coverage(sets, y[test]), mean_set_size(sets), singleton_rate(sets), grouped))
    assert found.coverage == pytest.approx(np.mean([row[0] for row in rows]))
    assert found.set_size == pytest.approx(np.mean([row[1] for row in rows]))
    assert found.singleton_rate == pytest.approx(np.mean([row[2] for row in rows]))
    for field in ("coverage", "size"):
        each = np.array([getattr(row[3], field) for row in rows])
        there = ~np.isnan(each)
        expected = [
            col[ok].mean() if ok.any() else np.nan for col, ok in zip(each.T, there.T, strict=True)
        ]
        np.testing.assert_allclose(getattr(found.groups["g"], field), expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 5), st.integers(1, 5))
def test_resplits_are_judged_as_their_sets_would_be(seed, n, repeats, groups):
    scores, y, q_hats, is_test, group = draw(seed, n, repeats, 4, groups)
    found = evaluate_resplits(scores, y, q_hats, is_test, {"g": group}, node_group=group)
    means(found, scores, y, q_hats, is_test, "node", group)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 5))
def test_resplits_with_a_threshold_for_each_label(seed, n, repeats):
    scores, y, q_hats, is_test, group = draw(seed, n, repeats, 4, 4)
    found = evaluate_resplits(scores, y, q_hats, is_test, {"g": group})
    means(found, scores, y, q_hats, is_test, "label", group)


@pytest.mark.parametrize("per", ["node", "label"])
def test_chunks_change_nothing(per, monkeypatch):
    scores, y, q_hats, is_test, group = draw(1, 50, 4, 4, 4)
    of_node = group if per == "node" else None
    whole = evaluate_resplits(scores, y, q_hats, is_test, {"g": group}, node_group=of_node)
    monkeypatch.setattr(metrics, "_CHUNK", 7)
    parts = evaluate_resplits(scores, y, q_hats, is_test, {"g": group}, node_group=of_node)
    assert parts.coverage == whole.coverage
    assert parts.set_size == whole.set_size
    np.testing.assert_array_equal(parts.groups["g"].coverage, whole.groups["g"].coverage)


def test_equal_thresholds_are_one_threshold():
    scores, y, _, is_test, group = draw(2, 40, 3, 4, 4)
    q = np.array([0.2, 0.5, 0.9], np.float32)
    one = evaluate_resplits(scores, y, q, is_test)
    same = np.repeat(q[:, None], 4, axis=1)
    for of_node in (None, group):
        several = evaluate_resplits(scores, y, same, is_test, node_group=of_node)
        assert several.coverage == one.coverage
        assert several.set_size == one.set_size


def test_shapes_that_do_not_fit_are_refused():
    scores, y, q_hats, is_test, group = draw(3, 10, 2, 4, 3)
    with pytest.raises(DataError, match=r"or \(re-splits, 4\) for one per label"):
        evaluate_resplits(scores, y, q_hats, is_test)
    with pytest.raises(DataError, match=r"with node_group it must be \(re-splits, groups\)"):
        evaluate_resplits(scores, y, q_hats[:, 0], is_test, node_group=group)
    with pytest.raises(DataError, match=r"node_group\[\d+\] is 2; it must lie in 0 … 1"):
        evaluate_resplits(scores, y, q_hats[:, :2], is_test, node_group=np.full(10, 2))
    q_hats[1, 2] = np.nan
    with pytest.raises(DataError, match=r"q_hats\[1, 2\] is nan"):
        evaluate_resplits(scores, y, q_hats, is_test, node_group=group)
