"""Prediction sets from scores and a threshold: boolean arrays (nodes, labels)."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_probs, check_scores, check_thresholds
from fedcover.conformal.scores import aps_det
from fedcover.errors import DataError

Sets = NDArray[np.bool_]


def prediction_sets(
    scores: ArrayLike, q_hat: ArrayLike, per: Literal["node", "label"] | None = None
) -> Sets:
    """Theorem 1's rule: label y is in the set of node i exactly if scores[i, y] ≤ q̂, in float32.

    ``q_hat`` is one threshold; with ``per="node"`` one for each node (calibration by client or
    group), with ``per="label"`` one for each label (calibration by class).
    """
    array = check_scores(scores)
    if per is None:
        return np.asarray(array <= _threshold(q_hat))
    thresholds = check_thresholds("q_hat", q_hat)
    axis = 0 if per == "node" else -1
    if thresholds.shape != (array.shape[axis],):
        raise DataError(
            f"q_hat has shape {thresholds.shape}; it must be ({array.shape[axis]},), "
            f"one threshold per {per}."
        )
    return np.asarray(array <= (thresholds[:, None] if per == "node" else thresholds))


def add_top_label(sets: Sets, probs: ArrayLike) -> Sets:
    """Give every empty set its most probable label (``--no-empty-sets``); others stay.

    Sets only grow, so the lower end of the coverage guarantee stands. For many re-splits at once,
    set the top label's score to −inf after the calibration scores are taken: every score of this
    package is lowest at the top label, so a set that lacks it is empty, and both ways agree.
    """
    result = sets.copy()
    empty = np.flatnonzero(~sets.any(axis=1))
    result[empty, np.argmax(check_probs(probs)[empty], axis=1)] = True
    return result


def crossing_sets(probs: ArrayLike, q_hat: float) -> Sets:
    """The paper's section 3 rule: the top k* labels, k* = min {k : V(x, k) ≥ q̂}.

    It includes the label that crosses q̂, so it holds one label more than S ≤ q̂ unless V meets q̂
    exactly. An option for deterministic APS, off by default (docs/scores.md).
    """
    mass, threshold = aps_det(probs), _threshold(q_hat)
    descending = np.argsort(-check_probs(probs), axis=1, kind="stable")
    mass_before = np.roll(np.take_along_axis(mass, descending, axis=1), 1, axis=1)
    mass_before[:, 0] = -np.inf
    result = np.empty(mass.shape, dtype=np.bool_)
    np.put_along_axis(result, descending, mass_before < threshold, axis=1)
    # The top label stays even at q̂ = −inf, where no mass lies below.
    np.put_along_axis(result, descending[:, :1], True, axis=1)
    return result


def _threshold(q_hat: ArrayLike) -> np.float32:
    if np.ndim(q_hat) > 0:
        raise DataError(
            f"q_hat has shape {np.shape(q_hat)}; it must be one number, or per must say what each "
            "of them is for."
        )
    threshold = np.float32(np.asarray(q_hat).item())
    if np.isnan(threshold):
        raise DataError("q_hat is nan; it must be a number or inf.")
    return threshold
