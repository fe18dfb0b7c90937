"""Standardising: the numbers of scikit-learn, from sums that clients may send."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from fedcover.errors import DataError
from fedcover.graphs.scaling import Scaling, column_sums, scaled, scaling_of


def fit_scaling(x, train_nodes, columns, missing=None):
    """What a federation agrees on, with one array of training nodes for each client, or one."""
    needed = np.asarray(columns, dtype=bool).copy()
    if missing is not None:
        needed[missing[1]] = True
    summed = np.flatnonzero(needed)
    parts = [train_nodes] if isinstance(train_nodes, np.ndarray) else train_nodes
    sums = np.sum([column_sums(x, nodes, summed, missing) for nodes in parts], axis=0)
    return scaling_of(sums, summed, columns)


def test_by_hand() -> None:
    x = np.array([[1, 0, 9], [3, 1, 9], [100, 1, 5]], dtype=np.float32)
    scaling = fit_scaling(x, np.array([0, 1]), np.array([True, False, True]))
    assert scaling.mean.tolist() == [2, 0, 9]
    assert scaling.scale.tolist() == [1, 1, 1]  # the last one is constant on training nodes
    assert scaled(x, scaling).tolist() == [[-1, 0, 0], [1, 1, 0], [98, 1, -4]]


def test_missing_values_get_the_training_mean_by_hand() -> None:
    x = np.array([[1, 0], [3, 0], [0, 1], [0, 0]], dtype=np.float32)
    missing = np.array([[2, 1], [0, 1]])  # node 2 lacks the first, node 1 the second feature
    scaling = fit_scaling(x, np.array([0, 1, 2]), np.array([True, False]), missing)
    assert scaling.fill.tolist() == [2, 0.5]
    assert scaled(x, scaling, missing).tolist() == [[-1, 0], [1, 0.5], [0, 1], [-2, 0]]


@pytest.mark.parametrize("offset", [0.0, 1e4, -3e6])
def test_scikit_learn_agrees(offset: float) -> None:
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(200, 4)) * [1, 30, 1e3, 0.1] + offset).astype(np.float32)
    train = rng.choice(200, 60, replace=False)
    scaling = fit_scaling(x, train, np.ones(4, dtype=bool))
    oracle = StandardScaler().fit(x[train].astype(np.float64))
    assert np.allclose(scaling.mean, oracle.mean_, rtol=1e-6)
    large = oracle.scale_ > 1e-6 * abs(offset)
    assert np.allclose(scaling.scale[large], oracle.scale_[large], rtol=1e-3)


def test_imputing_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(50, 3)).astype(np.float32)
    missing = np.unique(rng.integers(0, [50, 3], size=(30, 2)), axis=0).T
    holed = x.copy()
    holed[tuple(missing)] = np.nan
    x[tuple(missing)] = 0
    train = np.arange(25)
    oracle = SimpleImputer().fit(holed[train]).transform(holed)
    none = np.zeros(3, dtype=bool)
    filled = scaled(x, fit_scaling(x, train, none, missing), missing)
    assert np.allclose(filled, oracle, atol=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_sums_of_clients_are_the_sums_of_all(seed: int, clients: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(5, 2, size=(40, 3)).astype(np.float32)
    missing = np.unique(rng.integers(0, [40, 3], size=(10, 2)), axis=0).T
    train = np.flatnonzero(rng.random(40) < 0.5)
    owner = rng.integers(0, clients, len(train))
    parts = [train[owner == client] for client in range(clients)]
    columns = np.array([0, 2])
    whole = column_sums(x, train, columns, missing)
    summed = sum(column_sums(x, nodes, columns, missing) for nodes in parts)
    assert np.allclose(whole, summed)
    assert whole.shape == (3, 2)


def test_nothing_but_training_nodes_counts() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 2)).astype(np.float32)
    other = x.copy()
    other[10:] = 1e6
    one, two = (fit_scaling(a, np.arange(10), np.ones(2, dtype=bool)) for a in (x, other))
    assert one.to_dict() == two.to_dict()


def test_sparse_features_are_scaled_like_dense_ones_and_stay_sparse() -> None:
    rng = np.random.default_rng(4)
    dense = (rng.random((60, 12)) < 0.1).astype(np.float32)
    dense[:, 3] = rng.normal(7, 2, 60)
    columns = np.arange(12) == 3
    missing = np.array([[5], [3]])
    matrix = sparse.csr_array(dense)
    of_dense, of_sparse = (fit_scaling(x, np.arange(20), columns, missing) for x in (dense, matrix))
    assert of_dense.to_dict() == of_sparse.to_dict()
    result = scaled(matrix, of_sparse, missing)
    assert sparse.issparse(result)
    assert np.array_equal(result.toarray(), scaled(dense, of_dense, missing))
    untouched = np.flatnonzero(~columns)
    assert np.array_equal(result.toarray()[:, untouched], dense[:, untouched])


def test_nothing_to_scale_gives_the_same_object() -> None:
    x = sparse.csr_array(np.eye(4, dtype=np.float32))
    scaling = fit_scaling(x, np.arange(2), np.zeros(4, dtype=bool))
    assert scaled(x, scaling) is x


def test_a_column_without_any_training_value_is_centred_at_nothing() -> None:
    scaling = scaling_of(np.zeros((3, 1)), np.array([0]), np.array([True]))
    assert (scaling.mean.tolist(), scaling.scale.tolist()) == ([0], [1])


def test_values_far_off_stay_finite() -> None:
    x = np.array([[0], [1e-30], [3e38], [-3e38]], dtype=np.float32)
    scaling = fit_scaling(x, np.array([0, 1]), np.array([True]))
    assert np.isfinite(scaled(x, scaling)).all()


@given(
    st.lists(
        st.tuples(
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.floats(2.0**-99, 2.0**99, width=32),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_scaling_is_read_as_it_was_written(parts: list[tuple[float, float]]) -> None:
    mean, scale = np.array(parts, dtype=np.float32).T
    scaling = Scaling(mean, scale, mean)
    again = Scaling.from_dict(json.loads(json.dumps(scaling.to_dict())))
    for name in ("mean", "scale", "fill"):
        assert getattr(again, name).tobytes() == getattr(scaling, name).tobytes()


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"mean": [0], "scale": [1]},
        {"mean": [0], "scale": [0], "fill": [0]},
        {"mean": [0, 1], "scale": [1], "fill": [0]},
        {"mean": ["a"], "scale": [1], "fill": [0]},
        {"mean": [float("nan")], "scale": [1], "fill": [0]},
    ],
)
def test_what_is_no_scaling(content: dict) -> None:
    with pytest.raises(DataError, match="scaling"):
        Scaling.from_dict(content)


def test_other_features_than_fitted_to() -> None:
    scaling = fit_scaling(np.eye(3, dtype=np.float32), np.arange(3), np.ones(3, dtype=bool))
    with pytest.raises(DataError, match="have 2 columns, but the scaling is for 3"):
        scaled(np.eye(2, dtype=np.float32), scaling)
