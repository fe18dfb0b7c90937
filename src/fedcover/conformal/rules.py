"""Thresholds by any quantile rule: what every client sends, and what the server makes of it.

``exact`` finds the order statistic of Theorem 1 and is the default. ``mixture`` promises the same
for test nodes that are spread over the clients in any known way. The proofs are in
``docs/guarantee.md``. The others carry no finite-sample guarantee when clients differ: ``pooled``
takes the rank that one owner of all scores would, and ``average`` and ``tdigest`` are the paper's
two approximations, here to reproduce it. A client's local data are its calibration scores.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal import order
from fedcover.conformal.checks import Shares, check_alpha, check_indices, check_scores, refuse
from fedcover.conformal.protocol import Client, Listener, Message, Server, converse
from fedcover.errors import DataError, UsageError

COMPRESSION = 200
"""Of a T-Digest, DataSketches' own default: about 3 kB a client, rank errors below 0.02 at the
usual levels."""

Scores = NDArray[np.float32]
Band = tuple[float, float]


@dataclass(frozen=True)
class Threshold:
    """The server's answer: q̂ and how it came about.

    ``q_hat`` is a float32 value or +inf. ``rank`` is the rank among the pooled scores, 0 for
    ``average`` and ``mixture``, which have none. ``note`` is empty or a sentence the user must see.
    """

    q_hat: float
    n_calibration: int
    clients: int
    rank: int
    note: str = ""


class Resplits(NamedTuple):
    """True scores and clients of all nodes (n,), the calibration nodes of each re-split, and K."""

    scores: Scores
    owner: NDArray[np.intp]
    mask: NDArray[np.bool_]  # (R, n)
    clients: int


@dataclass(frozen=True)
class Rule:
    """A quantile rule. Shares are None but for the rule ``mixture``.

    ``client`` answers a query, ``server`` finds the threshold of a level, ``resplits`` q̂ of every
    re-split and level, bit for bit what the conversation finds. ``band`` takes alpha and the
    clients' numbers of scores; None: the rule has no finite-sample guarantee.
    """

    client: Client[ArrayLike]
    server: Callable[[float, Shares | None], Server[Threshold]]
    resplits: Callable[[Resplits, Sequence[float], Shares | None], Scores]
    band: Callable[[float, Sequence[int], Shares | None], Band] | None = None

    @property
    def guarantee(self) -> bool:
        """Whether its q̂ covers 1 − α in finite samples."""
        return self.band is not None


# exact and pooled: an order statistic.


def rank_server(
    alpha: float, _shares: Shares | None = None, *, pooled: bool = False
) -> Server[Threshold]:
    """Theorem 1: q̂ is the ⌈(1−α)(N+K)⌉-th smallest calibration score.

    K counts every client, also one without calibration scores: a test node may be its. ``pooled``
    takes 1 in place of K, as if one client held all scores, and has no guarantee: where clients
    differ, coverage can lie below 1 − α, by up to (1 − α)(K − 1)/(N + K).
    """

    def rank_of(n: list[int]) -> int:
        return order.exact_rank(alpha, sum(n), 1 if pooled else len(n))

    q_hat, n = yield from order.search_rank(rank_of)
    return _at_rank(q_hat, alpha, sum(n), len(n), rank_of(n))


def rank_resplits(
    splits: Resplits, alphas: Sequence[float], _shares: Shares | None, *, pooled: bool = False
) -> Scores:
    """The same for re-splits."""
    table = order.OrderStatistics(splits.scores, np.zeros_like(splits.owner), splits.mask, 1)
    ranks = order.exact_ranks(alphas, table.counts, 1 if pooled else splits.clients)
    return table.at(ranks)[..., 0].T


def _at_rank(q_hat: float, alpha: float, n: int, clients: int, rank: int) -> Threshold:
    note = (
        f"alpha = {alpha:g} asks for rank {rank} of {n} calibration scores at {clients} clients: "
        "q_hat is +inf and every set holds all labels."
    )
    return Threshold(q_hat, n, clients, rank, note if rank > n else "")


# mixture: any known shares of the clients.


def mixture_server(alpha: float, shares: Shares | None = None) -> Server[Threshold]:
    """q̂ is the smallest score q with Σ_k p_k · #{scores of client k ≤ q}/(n_k + 1) ≥ 1 − α.

    p_k is client k's share of ``shares``, the probability that a test node is its; ``None`` means
    n_k + 1, and then this is Theorem 1's q̂. The server weighs the counts before it adds them, in
    whole numbers. A client without a share has no say; the share of one without scores counts as
    never covered.
    """

    def aim(n: list[int]) -> tuple[NDArray[Any], int]:
        weights, scale = order.mixture_weights(n, shares)
        # Σ w_k·n_k < s, so that 64 bits hold all sums if they hold s.
        exact = np.array(weights, dtype=np.int64 if scale < 2**63 else object)
        return exact, order.exact_rank(alpha, scale, 0)

    q_hat, n = yield from order.search(aim)
    weights, scale = order.mixture_weights(n, shares)
    reach = sum(weight * size for weight, size in zip(weights, n, strict=True))
    sentences = []
    if silent := [k for k, size in enumerate(n) if size == 0 and weights[k] > 0]:
        lost = sum(weights[k] for k in silent) / scale
        sentences.append(
            f"a share of {lost:.3g} of the mixture is at clients without calibration scores "
            f"({', '.join(map(str, silent))}) and counts as never covered, which makes sets larger."
        )
    if reach < order.exact_rank(alpha, scale, 0):
        sentences.append(
            f"alpha = {alpha:g} is less than what {sum(n)} calibration scores at {len(n)} clients "
            f"leave open for this mixture, {1 - reach / scale:.3g}: "
            "q_hat is +inf and every set holds all labels."
        )
    return Threshold(q_hat, sum(n), len(n), 0, " ".join(sentences))


def mixture_resplits(splits: Resplits, alphas: Sequence[float], shares: Shares | None) -> Scores:
    """Floats find the place to within their rounding, whole numbers decide inside it."""
    ascending = np.argsort(splits.scores, kind="stable")
    scores, owner, K = splits.scores[ascending], splits.owner[ascending], splits.clients
    q_hats = np.full((len(splits.mask), len(alphas)), np.inf, dtype=np.float32)
    known: dict[tuple[int, ...], tuple[list[int], int, NDArray[np.float64]]] = {}  # by sizes
    for r, row in enumerate(splits.mask):
        places = np.flatnonzero(row[ascending])
        held = owner[places]
        sizes = tuple(np.bincount(held, minlength=K).tolist())
        if sizes not in known:  # re-splits mostly keep them
            weights, scale = order.mixture_weights(sizes, shares)
            known[sizes] = weights, scale, np.array([weight / scale for weight in weights])
        weights, scale, parts = known[sizes]
        reached = np.cumsum(parts[held])
        # A sum of n numbers with total at most 1 is off by at most n roundings; so is each part.
        slack = 4 * (len(places) + 1) * np.finfo(np.float64).eps

        def exactly(end: int, weights: list[int] = weights, held: NDArray[np.intp] = held) -> int:
            """The whole-number weight of the scores up to and with place ``end``."""
            counts = np.bincount(held[: end + 1], minlength=K).tolist()
            return sum(weight * count for weight, count in zip(weights, counts, strict=True))

        for a, alpha in enumerate(alphas):
            target = order.exact_rank(alpha, scale, 0)
            low, high = np.searchsorted(reached, target / scale + np.array([-slack, slack]))
            place = bisect_left(range(len(places)), target, int(low), int(high), key=exactly)
            if place < len(places):
                q_hats[r, a] = scores[places[place]]
    return q_hats


# average: the mean of the clients' own quantiles.


def average_client(scores: ArrayLike, query: Message) -> Message:
    """Send the local conformal quantile, the ⌈(1−α)(n_k+1)⌉-th smallest score, and n_k.

    Where that rank is above n_k the largest score stands in, as is usual where quantiles are
    averaged. No scores, no quantile.
    """
    ordered = np.sort(check_scores(scores).ravel())
    rank = order.exact_rank(float(query["alpha"][0]), len(ordered))
    return {"quantile": ordered[: min(rank, len(ordered))][-1:], "n": np.array([len(ordered)])}


def average_server(alpha: float, _shares: Shares | None = None) -> Server[Threshold]:
    """Take the plain mean of the clients' local quantiles (the paper's main results).

    Without a guarantee: where clients differ, coverage can fall far below 1 − α.
    """
    replies = yield {"alpha": np.array([check_alpha(alpha)])}
    n_k = np.array([int(reply["n"][0]) for reply in replies])
    quantiles = np.array([reply["quantile"][0] if reply["n"][0] else 0 for reply in replies])
    small = [str(k) for k, n in enumerate(n_k) if order.exact_rank(alpha, n) > n]
    note = (
        f"averaging needs n_k >= 1/alpha - 1 = {1 / alpha - 1:g} nodes at every client; "
        f"too few at client {', '.join(small)}: the largest score stood in, or none was sent."
    )
    q_hat = float(_mean_quantile(quantiles, n_k > 0))
    return Threshold(q_hat, int(n_k.sum()), len(replies), 0, note if small else "")


def average_resplits(splits: Resplits, alphas: Sequence[float], _shares: Shares | None) -> Scores:
    """The same for re-splits."""
    table = order.OrderStatistics(splits.scores, splits.owner, splits.mask, splits.clients)
    n = table.counts
    quantiles = table.at(np.minimum(order.exact_ranks(alphas, n, 1), n))
    return _mean_quantile(quantiles, n > 0).T


def _mean_quantile(quantiles: NDArray[Any], present: NDArray[np.bool_]) -> Scores:
    """Mean over the last axis of the clients that are present, +inf where none is.

    Client after client, so that a conversation and many re-splits agree to the last bit.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        total = np.cumsum(np.where(present, quantiles.astype(np.float64), 0.0), axis=-1)[..., -1]
        mean = (total / present.sum(axis=-1)).astype(np.float32)
    mean = np.where(present.any(axis=-1), mean, np.float32(np.inf))
    if np.isnan(mean).any():
        raise DataError("The clients' quantiles contain both -inf and +inf and have no mean.")
    return mean + np.float32(0.0)


# tdigest: sketches by Apache DataSketches, which is imported only when one is made.


def sketch_client(scores: ArrayLike, _query: Message) -> Message:
    """Send a T-Digest of the local scores, serialised to bytes."""
    array = check_scores(scores).ravel()
    refuse("scores", array, np.isinf(array), "a T-Digest takes finite scores only")
    sketch = _digest()(COMPRESSION)
    sketch.update(array.astype(np.float64))
    return {"sketch": np.frombuffer(sketch.serialize(), dtype=np.uint8)}


def sketch_server(alpha: float, _shares: Shares | None = None) -> Server[Threshold]:
    """Merge the clients' T-Digests and ask for the rank of Theorem 1 (no guarantee: a sketch)."""
    replies = yield {}
    return _of_sketches(replies, [alpha])[0]


def sketch_resplits(splits: Resplits, alphas: Sequence[float], _shares: Shares | None) -> Scores:
    """The same for re-splits: every client sketches once for all levels."""
    nodes_of = [np.flatnonzero(splits.owner == k) for k in range(splits.clients)]
    q_hats = np.empty((len(splits.mask), len(alphas)), dtype=np.float32)
    for r, row in enumerate(splits.mask):
        replies = [sketch_client(splits.scores[nodes[row[nodes]]], {}) for nodes in nodes_of]
        q_hats[r] = [threshold.q_hat for threshold in _of_sketches(replies, alphas)]
    return q_hats


def merged_sketch(sketches: Sequence[NDArray[np.uint8]]) -> Any:
    """The clients' sketches as one, merged in their order."""
    digest = _digest()
    merged = digest(COMPRESSION)
    for sketch in sketches:
        merged.merge(digest.deserialize(sketch.tobytes()))
    return merged


def _of_sketches(replies: Sequence[Message], alphas: Sequence[float]) -> list[Threshold]:
    """The thresholds of all levels.

    The rank-th of N items fills (rank − 1)/N … rank/N; its middle is exact while the sketch holds
    every score by itself.
    """
    sketch = merged_sketch([reply["sketch"] for reply in replies])
    n, clients = sketch.get_total_weight(), len(replies)
    thresholds = []
    for alpha in alphas:
        rank = order.exact_rank(alpha, n, clients)
        q_hat = np.float32(sketch.get_quantile((rank - 0.5) / n) if rank <= n else np.inf)
        thresholds.append(_at_rank(float(q_hat), alpha, n, clients, rank))
    return thresholds


def _digest() -> Any:
    try:
        from datasketches import tdigest_double
    except ImportError as error:
        raise UsageError("The tdigest rule needs the package datasketches.") from error
    return tdigest_double


# What is promised.


def mixture_band(alpha: float, n: Sequence[int], shares: Shares | None) -> Band:
    """The band of the rule ``mixture``: 1−α and 1−α+Σ_k p_k/(n_k+1), for n_k scores at client k.

    It is for the expected coverage of a test node that is client k's with probability p_k. The
    upper end supposes scores without ties. For Theorem 1's shares (None) it is Theorem 1's band.
    """
    weights, scale = order.mixture_weights(n, shares)
    level = 1.0 - check_alpha(alpha)
    return level, level + sum(weights) / scale


def coverage_band(alpha: float, n: int, clients: int = 1) -> Band:
    """Theorem 1's band for the expected coverage: 1−α and 1−α+K/(N+K).

    The upper end supposes scores without ties; the lower one always holds.
    """
    level = 1.0 - check_alpha(alpha)
    return level, level + clients / (n + clients)


def beta_binomial(alpha: float, n: int, m: int) -> tuple[float, float]:
    """Mean and standard deviation of the empirical coverage over m test nodes after n calibration.

    For one client, exchangeable scores without ties, rank r = ⌈(1−α)(n+1)⌉: the number covered is
    BetaBinomial(m, r, n+1−r). If r > n, q̂ is +∞ and coverage is 1 without spread.
    """
    a = order.exact_rank(alpha, n)
    if a > n:
        return 1.0, 0.0
    b, total = n + 1 - a, n + 1
    return a / total, sqrt(a * b * (total + m) / (m * total**2 * (total + 1)))


RULES: dict[str, Rule] = {
    "exact": Rule(order.histogram_client, rank_server, rank_resplits, mixture_band),
    "mixture": Rule(order.histogram_client, mixture_server, mixture_resplits, mixture_band),
    "pooled": Rule(
        order.histogram_client,
        partial(rank_server, pooled=True),
        partial(rank_resplits, pooled=True),
    ),
    "average": Rule(average_client, average_server, average_resplits),
    "tdigest": Rule(sketch_client, sketch_server, sketch_resplits),
}


# Thresholds by any of them.


def check_rule(rule: str, shares: Shares | None = None) -> None:
    """Refuse a rule that does not exist, or shares for one that takes none."""
    if rule not in RULES:
        raise UsageError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}.")
    if shares is not None and rule != "mixture":
        raise UsageError(f"shares are given for the rule {rule!r}; only 'mixture' takes them.")


def server_of(rule: str, alpha: float, shares: Shares | None = None) -> Server[Threshold]:
    """Return the rule's server for this level; ``shares`` are for ``mixture`` alone."""
    check_rule(rule, shares)
    return RULES[rule].server(check_alpha(alpha), shares)


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
    true_scores: ArrayLike, client: ArrayLike, is_calibration: ArrayLike, clients: int | None
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
