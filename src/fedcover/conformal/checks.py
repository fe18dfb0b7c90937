"""Argument checks, kept apart from the maths: one clear sentence each."""

from collections.abc import Sequence
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.errors import DataError, UsageError

ROW_SUM_TOLERANCE = 1e-3
"""How far a row of probabilities may be from 1: half precision passes, logits do not."""

SHARE_DENOMINATOR = 10**9
"""Shares given as floats are read as fractions of at most this denominator: 0.1 is one tenth."""

Shares = Sequence[float | Fraction] | NDArray[Any]
"""How test nodes are spread over the clients: one number for each, of any common scale."""


def check_alpha(alpha: float) -> float:
    """Return the miscoverage level as a float, or refuse it unless 0 < alpha < 1."""
    alpha = float(alpha)
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"alpha is {alpha}; it must lie strictly between 0 and 1.")
    return alpha


def check_confidence(confidence: float) -> float:
    """Return the confidence as a float, or refuse it unless it lies in 0.5 … 1."""
    confidence = float(confidence)
    if not 0.5 <= confidence < 1.0:
        raise UsageError(f"confidence is {confidence}; it must be at least 0.5 and below 1.")
    return confidence


def check_shares(shares: Shares, clients: int, name: str = "shares") -> list[Fraction]:
    """Return the clients' shares as fractions that sum to 1, or say what is wrong with them.

    If there is a float among them, every share is rounded to the nearest fraction of a denominator
    up to ``SHARE_DENOMINATOR``: 0.5, 0.3, 0.2 are tenths, and (n_k + 1)/(N + K), computed in
    floats, is that fraction.
    """
    if not (isinstance(shares, Sequence) or (isinstance(shares, np.ndarray) and shares.ndim == 1)):
        raise UsageError(f"{name} is {shares!r}; it must hold one number for each client.")
    values = list(shares)
    if len(values) != clients:
        raise UsageError(
            f"{name} has length {len(values)}; it must hold one number for each of the "
            f"{clients} clients."
        )
    for place, value in enumerate(values):
        number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        if not (number and 0 <= value < float("inf")):
            shown = f"{float(value):.12g}" if number else repr(value)
            raise UsageError(f"{name}[{place}] is {shown}; it must be a number of 0 or more.")
    exact = [_fraction(value) for value in values]
    if not any(exact):
        raise UsageError(f"{name} is 0 for every client; at least one must be above 0.")
    if not all(isinstance(value, Rational) for value in values):
        total = sum(exact)
        exact = [(value / total).limit_denominator(SHARE_DENOMINATOR) for value in exact]
    total = sum(exact)
    return [value / total for value in exact]


def _fraction(value: Any) -> Fraction:
    if isinstance(value, Integral):
        return Fraction(int(value))  # numpy's integers would overflow inside a Fraction
    return Fraction(value if isinstance(value, Rational) else float(value))


def check_probs(probs: ArrayLike) -> NDArray[np.float64]:
    """Return probabilities as float64 of shape (nodes, labels), or say which entry is wrong."""
    array = check_table("probs", probs)
    bad = ~((array >= 0.0) & (array <= 1.0 + ROW_SUM_TOLERANCE))
    refuse("probs", array, bad, "a probability lies in 0 … 1")
    sums = array.sum(axis=1)
    bad = np.abs(sums - 1.0) > ROW_SUM_TOLERANCE
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"probs[{row}] sums to {sums[row]:.6g}; the labels of a node sum to 1.")
    return array


def check_table(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return values as float64 of shape (nodes, labels) with one label at least."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{name} has shape {array.shape}; it must be (nodes, labels).")
    return array


def at_labels(table: NDArray[Any], labels: ArrayLike) -> NDArray[Any]:
    """Pick every node's entry of its label from (nodes, labels), or say which one is no column."""
    return table[np.arange(len(table)), check_indices("labels", labels, *table.shape)]


def check_indices(name: str, values: ArrayLike, nodes: int, limit: int) -> NDArray[np.intp]:
    """Return integers of shape (nodes,) in 0 … limit − 1, or say which one is not."""
    array = _one_per_node(name, np.asarray(values), nodes)
    return check_positions(name, array, 0, limit).astype(np.intp)


def check_positions(name: str, array: NDArray[Any], lowest: int, limit: int) -> NDArray[np.int64]:
    """Return integers of any shape in lowest … limit − 1, or say which one is not."""
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{name} has type {array.dtype}; it must hold integers.")
    bad = (array < lowest) | (array >= limit)
    refuse(name, array, bad, f"it must lie in {lowest} … {limit - 1}")
    return array.astype(np.int64)


def check_u(u: ArrayLike, nodes: int) -> NDArray[np.float64]:
    """Return the uniform numbers, one per node, or say which one is outside 0 … 1."""
    array = _one_per_node("u", np.asarray(u, dtype=np.float64), nodes)
    refuse("u", array, ~((array >= 0.0) & (array <= 1.0)), "it must lie in 0 … 1")
    return array


def check_scores(scores: ArrayLike, name: str = "scores") -> NDArray[np.float32]:
    """Return non-conformity scores or thresholds as float32, −0.0 made +0.0, or refuse a NaN.

    Calibration and test scores alike pass through here, so rounding to float32 is part of the score
    and costs no coverage. ±inf are scores like any other.
    """
    with np.errstate(over="ignore"):  # beyond float32's range the nearest score is ±inf
        array = np.asarray(scores, dtype=np.float32)
    refuse(name, array, np.isnan(array), "it must be a number or inf")
    return array + np.float32(0.0)


def refuse(name: str, array: NDArray[Any], bad: NDArray[np.bool_], must: str) -> None:
    """Name the first bad entry, if there is one, and say what it must be."""
    if np.any(bad):
        place = tuple(np.argwhere(bad)[0].tolist())
        at = f"[{', '.join(map(str, place))}]" if place else ""
        raise DataError(f"{name}{at} is {array[place]}; {must}.")


def _one_per_node(name: str, array: NDArray[Any], nodes: int) -> NDArray[Any]:
    if array.shape != (nodes,):
        raise DataError(f"{name} has shape {array.shape}; it must be ({nodes},), one per node.")
    return array


SLACK = 0.02
"""Total variation up to which two spreads of nodes over the clients count as the same."""


def total_variation(p: NDArray[np.number], q: NDArray[np.number]) -> NDArray[np.float64]:
    """Between the two, each taken as shares of its last axis."""
    p, q = (one / np.maximum(one.sum(axis=-1, keepdims=True), 1e-300) for one in (p, q))
    return np.asarray(np.abs(p - q).sum(axis=-1) / 2)
