"""LAC sets, over all nodes, per client and per class (Mondrian), against crepes.

crepes keeps a label if its p-value (#{S_i ≥ S} + 1)/(n + 1) is at least α; S ≤ q̂ is the same with
"more than α". The two differ where α·(n+1) is a whole number and there only, by one rank; sizes
below avoid that, and the last test shows it. Smoothing, crepes' default, is off.
"""

import numpy as np
import pytest
from crepes import ConformalClassifier, WrapClassifier
from sklearn.base import BaseEstimator, ClassifierMixin

from fedcover.conformal import (
    calibrate,
    exact_rank,
    group_thresholds,
    lac,
    p_values,
    prediction_sets,
    rule_weights,
    true_scores,
)

LABELS = 5
SIZES = (12, 57, 233)  # calibration nodes at the three clients; too few at the first for α = 0.05
ALPHAS = (0.05, 0.1, 0.2)


@pytest.fixture
def data():
    rng = np.random.default_rng(2)
    client = np.repeat(np.arange(3), SIZES)
    sharpness = np.array([0.2, 0.6, 3.0])
    probs = np.array([rng.dirichlet(np.full(LABELS, sharpness[k])) for k in client])
    labels = np.array([rng.choice(LABELS, p=p) for p in probs])
    test_client = rng.integers(0, 3, 150)
    test = np.array([rng.dirichlet(np.full(LABELS, sharpness[k])) for k in test_client])
    return true_scores(lac(probs), labels), client, lac(test), test_client


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lac_sets(data, alpha):
    calibration, _, test, _ = data
    theirs = ConformalClassifier().fit(calibration)
    theirs = theirs.predict_set(test, confidence=1 - alpha, smoothing=False)
    ours = prediction_sets(test, calibrate([calibration], alpha).q_hat)
    np.testing.assert_array_equal(ours, theirs.astype(bool))
    assert 0 < ours.sum() < ours.size


@pytest.mark.parametrize("alpha", ALPHAS)
def test_mondrian_sets_are_one_calibration_for_each_client(data, alpha):
    calibration, client, test, test_client = data
    theirs = ConformalClassifier().fit(calibration, bins=client)
    theirs = theirs.predict_set(
        test, bins=test_client, confidence=1 - alpha, smoothing=False
    ).astype(bool)
    q_hats = [calibrate([calibration[client == k]], alpha).q_hat for k in range(3)]
    for k, q_hat in enumerate(q_hats):
        here = test_client == k
        np.testing.assert_array_equal(prediction_sets(test[here], q_hat), theirs[here])
    assert (q_hats[0] == np.inf) == (alpha == 0.05)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_thresholds_by_client_are_mondrian_bins(data, alpha):
    calibration, client, test, test_client = data
    theirs = ConformalClassifier().fit(calibration, bins=client)
    theirs = theirs.predict_set(
        test, bins=test_client, confidence=1 - alpha, smoothing=False
    ).astype(bool)
    by_client = [calibration[client == k] for k in range(3)]
    found = group_thresholds(by_client, [np.full(n, k) for k, n in enumerate(SIZES)], alpha)
    q_hats = np.array([own.q_hat for own in found])
    large = ~np.array([own.fell_back for own in found])[test_client]
    ours = prediction_sets(test, q_hats[test_client], per="node")
    np.testing.assert_array_equal(ours[large], theirs[large])
    # Where crepes keeps every label, twelve nodes being too few, we take the pooled threshold, or
    # the largest of the twelve.
    assert large.all() == (alpha != 0.05)
    pooled = prediction_sets(test, max(calibrate(by_client, alpha).q_hat, by_client[0].max()))
    np.testing.assert_array_equal(ours[~large], pooled[~large])
    assert theirs[~large].all()


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose input is already its probabilities."""

    classes_ = np.arange(LABELS)

    def fit(self, X, y=None):
        return self

    def predict_proba(self, X):
        return X


@pytest.mark.parametrize("alpha", [0.07, 0.13, 0.21])
def test_thresholds_by_class_are_class_conditional(alpha):
    rng = np.random.default_rng(4)
    probs = rng.dirichlet(np.full(LABELS, 0.7), size=400).astype(np.float32)
    # Labels that the probabilities do not explain alike: the last classes are hard.
    labels = np.where(rng.random(400) < 0.6, probs.argmax(axis=1), rng.integers(2, LABELS, 400))
    test = rng.dirichlet(np.full(LABELS, 0.7), size=300).astype(np.float32)
    wrapped = WrapClassifier(Given())
    wrapped.calibrate(probs, labels, class_cond=True)
    theirs = wrapped.predict_set(test, labels=None, confidence=1 - alpha, smoothing=False)
    found = group_thresholds([true_scores(lac(probs), labels)], [labels], alpha)
    assert not any(own.fell_back for own in found)
    assert len({own.q_hat for own in found}) == LABELS
    ours = prediction_sets(lac(test), [own.q_hat for own in found], per="label")
    np.testing.assert_array_equal(ours, np.asarray(theirs).astype(bool))
    assert 0 < ours.sum() < ours.size


def test_a_whole_alpha_times_n_plus_one_differs_by_one_rank():
    calibration = np.arange(1.0, 8.0, dtype=np.float32)  # n + 1 = 8, α = 1/4: α·(n+1) = 2
    labels = np.arange(1.0, 10.0, dtype=np.float32)[None, :]
    theirs = ConformalClassifier().fit(calibration)
    theirs = theirs.predict_set(labels, confidence=0.75, smoothing=False).astype(bool)
    assert exact_rank(0.25, 7) == 6
    np.testing.assert_array_equal(prediction_sets(labels, calibration[6 - 1])[0, :7], [1] * 6 + [0])
    np.testing.assert_array_equal(theirs, prediction_sets(labels, calibration[7 - 1]))


def test_p_values_of_one_client(data):
    calibration, _, test, _ = data
    theirs = ConformalClassifier().fit(calibration).predict_p(test, smoothing=False)
    ours = p_values(test, [calibration], rule_weights("exact", [len(calibration)]))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert len(np.unique(ours)) > 100
