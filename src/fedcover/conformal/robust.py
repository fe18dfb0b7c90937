"""Clients that may lie: a limit on what one may claim, and whose scores to leave out.

What either promises is in ``docs/guarantee.md``, "A party that lies".
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import SHARE_DENOMINATOR, Shares, check_scores, check_shares
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError

SPREAD = 20
"""Bins of equal width over 0 … 1 in which clients count their scores."""


def capped(shares: Shares, most: float) -> Sequence[float | Fraction] | NDArray[np.number]:
    """The shares with none above ``most``; as they are where none is.

    Who is above gets ``most``, and the rest goes to the others in proportion to their own shares,
    or evenly if they have none. Of K clients each may have 1/K, however small ``most`` is.
    """
    p = check_shares(shares, len(shares))
    limit = max(Fraction(most).limit_denominator(SHARE_DENOMINATOR), Fraction(1, len(p)))
    over: set[int] = set()
    found = p
    while above := {k for k, share in enumerate(found) if share > limit}:
        over |= above
        rest, others = 1 - limit * len(over), [k for k in range(len(p)) if k not in over]
        total = sum((p[k] for k in others), Fraction(0))
        part = {k: p[k] / total if total else Fraction(1, len(others)) for k in others}
        found = [limit if k in over else rest * part[k] for k in range(len(p))]
    return tuple(float(share) for share in found) if over else shares


def bin_of(scores: ArrayLike) -> NDArray[np.int64]:
    """Which of the ``SPREAD`` bins a score is in; the last ones hold what lies outside of 0 … 1."""
    places = np.clip(check_scores(scores).astype(np.float64), 0.0, 1.0) * SPREAD
    return np.minimum(places.astype(np.int64), SPREAD - 1)


def spread_client(scores: Sequence[ArrayLike], _query: Message) -> Message:
    """Count each kind of score by its bins."""
    counts = [np.bincount(bin_of(one).ravel(), minlength=SPREAD) for one in scores]
    return {"counts": np.stack(counts).astype(np.int64)}


def outliers(counts: ArrayLike, lying: int) -> list[int]:
    """The clients to leave out, as many as may lie, as Rob-FCP (Kang et al., ICML 2024) does.

    ``counts`` (K, …) are the clients' histograms. Each is brought to a sum of 1. A client's score
    is the sum of the Euclidean distances to its K − b − 1 nearest others; the b = ``lying`` clients
    with the largest are left out. Who counts nothing is not judged.
    """
    rows = np.asarray(counts, dtype=np.float64)
    rows = rows.reshape(len(rows), -1)
    there = np.flatnonzero(rows.sum(axis=1) > 0)
    if lying == 0:
        return []
    if len(there) <= 2 * lying:
        raise DataError(
            f"robust is {lying}, which needs more than {2 * lying} clients with calibration nodes; "
            f"there are {len(there)}."
        )
    shares = rows[there] / rows[there].sum(axis=1, keepdims=True)
    apart = np.linalg.norm(shares[:, None] - shares[None], axis=2)
    nearest = np.sort(apart, axis=1)[:, 1 : len(there) - lying]  # the first one is itself
    worst = np.argsort(-nearest.sum(axis=1), kind="stable")[:lying]
    return sorted(there[worst].tolist())
