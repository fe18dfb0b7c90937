import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcover.conformal import (
    by_group,
    coverage,
    empty_rate,
    evaluate_resplits,
    mean_set_size,
    metrics,
    prediction_sets,
    singleton_hits,
    singleton_rate,
    size_stratified,
)
from fedcover.errors import DataError


def draw(seed, n, repeats, labels=4):
    rng = np.random.default_rng(seed)
    scores = rng.random((n, labels)).round(1).astype(np.float32)  # ties with the thresholds
    q_hats = rng.choice([-1.0, 0.0, 0.2, 0.5, 0.5, 0.9, np.inf], size=repeats)
    is_test = rng.random((repeats, n)) < rng.choice([0.1, 0.5, 1.0])
    groups = {"client": rng.integers(0, 5, n), "boundary": rng.integers(0, 2, n)}
    y = rng.integers(0, labels, n)
    return scores, y, q_hats.astype(np.float32), is_test, groups | {"class": y}


def nanmean(rows):
    """Mean of each column over the rows where it is a number."""
    columns = np.array(rows, dtype=float).reshape(len(rows), -1).T
    numbers = [column[~np.isnan(column)] for column in columns]
    return np.array([column.mean() if column.size else np.nan for column in numbers])


def one_by_one(scores, labels, q_hats, is_test, groups):
    """The plain way: build the sets of each re-split and measure them."""
    rows = []
    for q_hat, test in zip(q_hats, is_test, strict=True):
        sets, y = prediction_sets(scores[test], q_hat), labels[test]
        rows.append(
            {
                "n_test": test.sum(),
                "coverage": coverage(sets, y),
                "set_size": mean_set_size(sets),
                "singleton_rate": singleton_rate(sets),
                "empty_rate": empty_rate(sets),
                "singleton_hits": singleton_hits(sets, y),
                "by_size": size_stratified(sets, y),
                **{
                    name: by_group(sets, y, g[test], int(g.max()) + 1) for name, g in groups.items()
                },
            }
        )
    return rows


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 6))
def test_equals_the_plain_way(seed, n, repeats):
    case = draw(seed, n, repeats)
    fast, plain = evaluate_resplits(*case), one_by_one(*case)
    for name in ("n_test", "coverage", "set_size", "singleton_rate", "empty_rate"):
        expected = nanmean([row[name] for row in plain])[0]
        np.testing.assert_allclose(getattr(fast, name), expected, err_msg=name)
    np.testing.assert_allclose(
        fast.singleton_hits, nanmean([row["singleton_hits"] for row in plain])[0]
    )
    for name, result in {"by_size": fast.by_size, **fast.groups}.items():
        for field in ("n", "coverage", "size"):
            expected = nanmean([getattr(row[name], field) for row in plain])
            np.testing.assert_allclose(getattr(result, field), expected, err_msg=f"{name} {field}")


def test_spread_is_over_resplits():
    scores, labels, _, _, _ = draw(0, 30, 1)
    is_test = np.ones((3, 30), bool)
    q_hats = np.array([0.2, 0.5, 0.9], np.float32)
    result = evaluate_resplits(scores, labels, q_hats, is_test)
    each = [prediction_sets(scores, q) for q in q_hats]
    assert result.coverage_sd == pytest.approx(np.std([coverage(s, labels) for s in each], ddof=1))
    assert result.set_size_sd == pytest.approx(np.std([mean_set_size(s) for s in each], ddof=1))
    assert result.coverage_sd > 0
    one = evaluate_resplits(scores, labels, q_hats[:1], is_test[:1])
    assert np.isnan(one.coverage_sd)
    assert np.isnan(one.set_size_sd)


def test_a_group_counts_only_where_it_has_test_nodes():
    scores, labels = np.array([[0.1], [0.9]], np.float32), np.zeros(2, int)
    is_test = np.array([[True, True], [True, False]])
    groups = {"client": np.array([0, 1])}
    result = evaluate_resplits(scores, labels, [0.5, 0.05], is_test, groups).groups["client"]
    np.testing.assert_array_equal(result.n, [1.0, 0.5])
    np.testing.assert_array_equal(result.coverage, [0.5, 0.0])
    assert result.worst() == 0.0


def test_chunks_of_nodes_add_up(monkeypatch):
    case = draw(5, 200, 4)
    whole = evaluate_resplits(*case)
    monkeypatch.setattr(metrics, "_CHUNK", 7)
    parts = evaluate_resplits(*case)
    assert (parts.coverage, parts.set_size, parts.empty_rate) == (
        whole.coverage,
        whole.set_size,
        whole.empty_rate,
    )
    for name in whole.groups:
        np.testing.assert_array_equal(parts.groups[name].size, whole.groups[name].size)


def test_bad_input_is_refused():
    scores, labels, q_hats, is_test, _ = draw(0, 6, 2)
    with pytest.raises(DataError, match=r"is_test is bool of shape \(2, 5\)"):
        evaluate_resplits(scores, labels, q_hats, is_test[:, :5])
    with pytest.raises(DataError, match=r"is_test is int64"):
        evaluate_resplits(scores, labels, q_hats, is_test.astype(int))
    with pytest.raises(DataError, match=r"q_hats\[1\] is nan"):
        evaluate_resplits(scores, labels, [0.0, np.nan], is_test)
    with pytest.raises(DataError, match=r"q_hats has shape \(1, 2\)"):
        evaluate_resplits(scores, labels, [q_hats], is_test)
    with pytest.raises(DataError, match=r"groups\['client'\] has shape \(5,\)"):
        evaluate_resplits(scores, labels, q_hats, is_test, {"client": np.zeros(5, int)})
