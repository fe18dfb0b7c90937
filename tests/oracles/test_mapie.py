"""LAC, APS and RAPS against MAPIE, an independent implementation.

Where conventions differ:

- MAPIE calibrates one data set, rank ⌈(1−α)(n+1)⌉: our exact rule with one client.
- Its u come from ``random_state``, drawn anew from the same seed for calibration and for test; the
  same numbers are given to ours.
- It compares in float64 with a slack of 1e-8, we compare in float32; random probabilities make a
  difference that small too rare to meet.
- ``include_last_label="randomized"`` is S = V − u·f ≤ q̂. ``False`` is V ≤ q̂, but never empty: ours
  with u = 0 and ``add_top_label``. ``True`` is the crossing rule of the paper's section 3.
- For a randomised RAPS set it asks (V + penalty − q̂)/d ≤ u with d = f − ν·(L − k_reg − 1) at a last
  label of rank L > k_reg + 1, while its own calibration scores, V − u·f + penalty, ask for d = f.
  We use the score on both sides. So its randomised sets are compared as they are where
  L ≤ k_reg + 1, and everywhere with d = f (its APS's) put in.
"""

import numpy as np
import pytest
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import APSConformityScore, RAPSConformityScore
from sklearn.base import BaseEstimator, ClassifierMixin

from fedcover.conformal import (
    add_top_label,
    aps,
    calibrate,
    crossing_sets,
    lac,
    prediction_sets,
    raps,
    true_scores,
)

SEED, LABELS, N, M = 11, 6, 237, 400
ALPHAS = (0.05, 0.1, 0.2)


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose input is already its probabilities."""

    def fit(self, X, y=None):
        self.classes_ = np.arange(LABELS)
        return self

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return np.argmax(X, axis=1)


@pytest.fixture(params=[0.1, 0.5, 2.0], ids="dirichlet={}".format)
def data(request):
    rng = np.random.default_rng(5)
    probs = rng.dirichlet(np.full(LABELS, request.param), size=N + M)
    # MAPIE drops labels of probability zero and keeps equal ones together: let there be neither.
    probs = 0.99 * probs + 0.01 * rng.dirichlet(np.ones(LABELS), size=N + M)
    labels = np.array([rng.choice(LABELS, p=p) for p in probs[:N]])
    labels[:LABELS] = np.arange(LABELS)  # MAPIE wants to see every label
    return probs[:N], labels, probs[N:]


def uniforms(n):
    return np.random.RandomState(SEED).uniform(size=n)  # the generator MAPIE uses


def mapie_sets(data, score, **options):
    calibration, labels, test = data
    model = SplitConformalClassifier(
        Given().fit(None),
        confidence_level=[1 - alpha for alpha in ALPHAS],
        conformity_score=score,
        prefit=True,
        random_state=SEED,
    ).conformalize(calibration, labels)
    _, sets = model.predict_set(test, conformity_score_params=options or None)
    scores = model._mapie_classifier.conformity_scores_.ravel()
    return scores, model._mapie_classifier.quantiles_, sets


def our_sets(calibration_scores, test_scores):
    q_hats = [calibrate([calibration_scores], alpha).q_hat for alpha in ALPHAS]
    return q_hats, np.stack([prediction_sets(test_scores, q) for q in q_hats], axis=2)


def test_lac(data):
    calibration, labels, test = data
    scores, quantiles, sets = mapie_sets(data, "lac")
    ours = true_scores(lac(calibration), labels)
    q_hats, our = our_sets(ours, lac(test))
    np.testing.assert_allclose(ours, scores, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(q_hats, quantiles, rtol=1e-6)
    np.testing.assert_array_equal(our, sets)


def test_aps_randomised(data):
    calibration, labels, test = data
    scores, quantiles, sets = mapie_sets(data, "aps", include_last_label="randomized")
    ours = true_scores(aps(calibration, uniforms(N)), labels)
    q_hats, our = our_sets(ours, aps(test, uniforms(M)))
    np.testing.assert_allclose(ours, scores, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(q_hats, quantiles, rtol=1e-6)
    np.testing.assert_array_equal(our, sets)
    assert 0 < our.sum() < our.size


@pytest.mark.parametrize("include_last_label", [False, True])
def test_aps_deterministic_sets(data, include_last_label):
    _, _, test = data
    _, quantiles, sets = mapie_sets(data, "aps", include_last_label=include_last_label)
    for q_hat, theirs in zip(quantiles, np.moveaxis(sets, 2, 0), strict=True):
        if include_last_label:
            ours = crossing_sets(test, q_hat)
        else:
            ours = add_top_label(prediction_sets(aps(test, np.zeros(M)), q_hat), test)
        np.testing.assert_array_equal(ours, theirs)


class RapsWithItsOwnScore(RAPSConformityScore):
    """MAPIE's RAPS with the d = f of its calibration scores."""

    _compute_v_parameter = APSConformityScore._compute_v_parameter


@pytest.mark.parametrize(("nu", "k_reg"), [(0.01, 1), (0.1, 2), (0.5, 1), (0.2, 4)])
def test_raps(data, nu, k_reg):
    calibration, labels, test = data
    compared_as_it_is = 0
    for alpha in ALPHAS:
        score, its_own = RAPSConformityScore(), RapsWithItsOwnScore()
        for rule in (score, its_own):
            rule.classes, rule.random_state = np.arange(LABELS), SEED
            rule.k_star, rule.lambda_star = np.array([k_reg]), nu

        plain = APSConformityScore.get_conformity_scores(score, labels, calibration, y_enc=labels)
        theirs = score._regularize_conformity_score(score.k_star, nu, plain, score.cutoff).ravel()
        ours = true_scores(raps(calibration, uniforms(N), nu, k_reg), labels)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)

        q_hat = calibrate([ours], alpha).q_hat
        score.quantiles_ = its_own.quantiles_ = np.array([q_hat])

        def sets_of(rule, include_last_label, alpha=alpha):
            probs = test[:, :, None].copy()
            args = (probs, None, np.array([alpha]), "prefit", "mean", include_last_label)
            return rule.get_prediction_sets(*args)[:, :, 0]

        deterministic = prediction_sets(raps(test, np.zeros(M), nu, k_reg), q_hat)
        np.testing.assert_array_equal(sets_of(score, False), add_top_label(deterministic, test))

        randomised = prediction_sets(raps(test, uniforms(M), nu, k_reg), q_hat)
        np.testing.assert_array_equal(sets_of(its_own, "randomized"), randomised)

        same = sets_of(score, True).sum(axis=1) <= k_reg + 1
        np.testing.assert_array_equal(sets_of(score, "randomized")[same], randomised[same])
        compared_as_it_is += int(same.sum())
    if k_reg == 4:
        assert compared_as_it_is > 50
