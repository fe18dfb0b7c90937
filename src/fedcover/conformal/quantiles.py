"""Thresholds by any rule: all clients in this process, or many re-splits at once."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import Shares, check_alpha, check_indices, check_scores
from fedcover.conformal.order import exact_rank
from fedcover.conformal.protocol import Listener, Server, converse
from fedcover.conformal.rules import RULES, Resplits, Threshold
from fedcover.errors import DataError, UsageError


def calibrate(
    scores_by_client: Sequence[ArrayLike],
    alpha: float,
    rule: str = "exact",
    *,
    shares: Shares | None = None,
    on_message: Listener | None = None,
) -> Threshold:
    """Find q̂ from every client's calibration scores, all clients in this process.

    ``shares``, for the rule ``mixture``, says how test nodes are spread over the clients, as
    numbers of any common scale; they must not come from the scores. ``None`` means n_k + 1.
    """
    server = server_of(rule, alpha, shares)
    if not scores_by_client:
        raise UsageError("scores_by_client is empty; it must hold one array for every client.")
    client = RULES[rule].client
    return converse(server, client, scores_by_client, kind="quantile", on_message=on_message)


def server_of(rule: str, alpha: float, shares: Shares | None = None) -> Server[Threshold]:
    """Return the rule's server for this level; ``shares`` are for ``mixture`` alone."""
    check_rule(rule, shares)
    return RULES[rule].server(check_alpha(alpha), shares)


def check_rule(rule: str, shares: Shares | None = None) -> None:
    """Refuse a rule that does not exist, or shares for one that takes none."""
    if rule not in RULES:
        raise UsageError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}.")
    if shares is not None and rule != "mixture":
        raise UsageError(f"shares are given for the rule {rule!r}; only 'mixture' takes them.")


def quantile_over_resplits(
    rule: str,
    true_scores: ArrayLike,
    client: ArrayLike,
    is_calibration: NDArray[np.bool_],
    alphas: Sequence[float],
    *,
    clients: int | None = None,
    shares: Shares | None = None,
) -> NDArray[np.float32]:
    """q̂ of every re-split and level: shape (R, len(alphas)), the conversation's bit for bit.

    ``true_scores`` and ``client`` are (n,), over all calibration and test nodes; row r of
    ``is_calibration`` (R, n) marks the calibration nodes of re-split r. ``clients`` is K, the
    largest index plus one unless given; give it where the last clients may hold no node.
    ``shares`` are for the rule ``mixture``, and the same in every re-split; ``None`` means n_k + 1.
    """
    check_rule(rule, shares)
    splits = check_resplits(true_scores, client, is_calibration, clients)
    return RULES[rule].resplits(splits, alphas, shares)


def check_resplits(
    true_scores: ArrayLike,
    client: ArrayLike,
    is_calibration: NDArray[np.bool_],
    clients: int | None,
) -> Resplits:
    """The re-splits, with their shapes checked."""
    scores = check_scores(true_scores)
    if scores.ndim != 1:
        raise DataError(f"true_scores has shape {scores.shape}; it must be one number per node.")
    K = int(np.max(client, initial=-1)) + 1 if clients is None else clients
    owner = check_indices("client", client, len(scores), K)
    mask = np.asarray(is_calibration)
    if mask.dtype != np.bool_ or mask.ndim != 2 or mask.shape[1] != len(scores):
        raise DataError(
            f"is_calibration is {mask.dtype} of shape {mask.shape}; "
            f"it must be bool of shape (re-splits, {len(scores)})."
        )
    return Resplits(scores, owner, mask, K)


def beta_binomial(alpha: float, n: int, m: int) -> tuple[float, float]:
    """Mean and standard deviation of the empirical coverage over m test nodes after n calibration.

    For one client, exchangeable scores without ties, rank r = ⌈(1−α)(n+1)⌉: the number covered is
    BetaBinomial(m, r, n+1−r). If r > n, q̂ is +∞ and coverage is 1 without spread.
    """
    rank = exact_rank(alpha, n)
    if rank > n:
        return 1.0, 0.0
    a, b = rank, n + 1 - rank
    total = a + b
    variance = a * b * (total + m) / (m * total**2 * (total + 1))
    return a / total, sqrt(variance)
