"""Temperature scaling on validation nodes, federated (the paper's set-up section).

With β = 1/T the loss NLL(β) = Σ log Σ_c exp(β z_c) − β z_y is convex, so its derivative
Σ (E_softmax(βz)[z] − z_y) never falls and one sign change gives the minimum. Both ways below are
client/server pairs; a client's local data are the logits and labels of its validation nodes.

``pooled`` (default): one T for the summed loss of all clients; they send sums of derivatives.
``averaged``: the paper's; every client fits its own T, the server takes the plain mean.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import at_labels, check_table, refuse
from fedcover.conformal.protocol import Client, Message, Server, converse
from fedcover.errors import UsageError
from fedcover.fixed_point import decode, encode

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
_BITS = 24  # of the fraction of a slope; there is room for logits of 1000 at 10⁸ nodes
_ROUNDS, _POINTS = 4, 33  # every round narrows the bracket of log β 32 times: 6 → 6e-6

ValidationNodes = tuple[ArrayLike, ArrayLike]  # logits (n, C) and integer labels (n,); n may be 0


def softmax(logits: ArrayLike, temperature: float = 1.0) -> NDArray[np.float64]:
    """Probabilities softmax(z / T), in float64."""
    powers = np.exp(_centred(logits) / _check_temperature(temperature))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def nll(logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0) -> float:
    """Summed negative log-likelihood of the labels at a temperature."""
    scaled = _centred(logits) / _check_temperature(temperature)
    return float((np.log(np.exp(scaled).sum(axis=1)) - at_labels(scaled, labels)).sum())


def pooled_client(local: ValidationNodes, query: Message) -> Message:
    """Send the local sums of dNLL/dβ at the asked points, in fixed point; zeros without nodes."""
    logits = _centred(local[0])
    true = at_labels(logits, local[1])

    def slope(beta: float) -> float:
        powers = np.exp(logits / (1.0 / beta))
        powers /= powers.sum(axis=1, keepdims=True)
        return float(((powers * logits).sum(axis=1) - true).sum())

    return {"slopes": encode([slope(beta) for beta in query["beta"]], _BITS)}


def pooled_server() -> Server[float]:
    """Find the T that minimises the summed loss, in four rounds of 33 points.

    T stays within 0.05 … 20. It is 1 where the loss is flat (no validation node anywhere, or logits
    that do not differ), and where it falls all the way to T = 0.05: then all validation nodes are
    classified right, and no T is too small for them.
    """
    low, high = np.log(1.0 / MAX_TEMPERATURE), np.log(1.0 / MIN_TEMPERATURE)
    for round_ in range(_ROUNDS):
        log_beta = np.linspace(low, high, _POINTS)
        replies = yield {"beta": np.exp(log_beta)}
        slopes = decode(sum(reply["slopes"] for reply in replies), _BITS)
        if not slopes.any():
            return 1.0
        if round_ == 0 and slopes[0] >= 0.0:
            return _temperature(low)
        if round_ == 0 and slopes[-1] <= 0.0:  # all nodes are right: the loss has no minimum
            return 1.0
        # Within the bracket a slope may be 0 to the last bit, at either end.
        right = max(int(np.argmax(np.append(slopes[:-1] >= 0.0, True))), 1)
        low, high = log_beta[right - 1 : right + 1]
        left_slope, right_slope = slopes[right - 1 : right + 1]
    # The bracket is so narrow that the derivative is a line in it.
    rise = right_slope - left_slope
    return _temperature(low - left_slope * (high - low) / rise if rise > 0 else low)


def averaged_client(local: ValidationNodes, _query: Message) -> Message:
    """Send the client's own T and its number of validation nodes."""
    return {"temperature": np.array([fit_temperature(*local)]), "n": np.array([np.size(local[1])])}


def averaged_server() -> Server[float]:
    """Take the plain mean of the T of all clients with validation nodes; 1 if there is none."""
    replies = yield {}
    fitted = [float(reply["temperature"][0]) for reply in replies if reply["n"][0] > 0]
    return float(np.mean(fitted)) if fitted else 1.0


class Fit(NamedTuple):
    """A way to find one temperature for all clients."""

    server: Callable[[], Server[float]]
    client: Client[ValidationNodes]
    summed: bool  # whether replies are only ever added up


TEMPERATURES = {
    "pooled": Fit(pooled_server, pooled_client, summed=True),
    "averaged": Fit(averaged_server, averaged_client, summed=False),
}
"""The ways to find a temperature."""


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """Fit T on one client's validation nodes alone."""
    return converse(pooled_server(), pooled_client, [(logits, labels)])


def _temperature(log_beta: float) -> float:
    return float(np.clip(np.exp(-log_beta), MIN_TEMPERATURE, MAX_TEMPERATURE))


def _check_temperature(temperature: float) -> float:
    if not (temperature > 0.0 and np.isfinite(temperature)):
        raise UsageError(f"temperature is {temperature}; it must be a finite number above 0.")
    return float(temperature)


def _centred(logits: ArrayLike) -> NDArray[np.float64]:
    """Logits in float64 with every row's largest at 0: no overflow, and flat rows exactly 0."""
    array = check_table("logits", logits)
    refuse("logits", array, ~np.isfinite(array), "it must be finite")
    return np.asarray(array - array.max(axis=1, keepdims=True))
