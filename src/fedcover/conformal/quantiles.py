"""The distributed quantile: what every client sends, and what the server makes of it.

``exact`` (docs/guarantee.md) finds the order statistic of Theorem 1 and is the default. ``mixture``
promises the same for test nodes that are spread over the clients in any known way; its proof is in
``docs/guarantee.md``. The others carry no finite-sample guarantee when clients differ: ``pooled``
takes the rank that one owner of all scores would, and ``average`` and ``tdigest`` are the paper's
two approximations, here to reproduce it. Each rule is a client function and a server generator
(see :mod:`fedcover.conformal.protocol`); a client's local data are its calibration scores.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal import tdigest
from fedcover.conformal.checks import Shares, check_alpha, check_scores
from fedcover.conformal.order import exact_rank, from_order_key, mixture_weights, order_key
from fedcover.conformal.protocol import Client, Listener, Message, Server, converse
from fedcover.errors import DataError, UsageError

_BYTES = 4  # of a float32, hence the number of rounds
_BINS = 256


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


def histogram_client(scores: ArrayLike, query: Message) -> Message:
    """Count the next byte of the scores whose key begins with the agreed prefix.

    ``query`` has ``depth`` (bytes agreed so far) and ``prefix`` (those bytes as an integer). The
    reply is 256 integer counts; nothing else ever leaves the client.
    """
    keys = order_key(scores).ravel()
    depth, prefix = int(query["depth"][0]), np.uint32(query["prefix"][0])
    shift = np.uint32(8 * (_BYTES - 1 - depth))
    if depth > 0:
        keys = keys[keys >> (shift + np.uint32(8)) == prefix]
    next_byte = (keys >> shift) & np.uint32(_BINS - 1)
    return {"counts": np.bincount(next_byte, minlength=_BINS).astype(np.int64)}


def order_statistic_server(
    rank_of: Callable[[int, int], int],
) -> Server[tuple[float, int, int, int]]:
    """Find the ``rank_of(N, K)``-th smallest score held by K clients in four rounds of counts.

    The counts of all clients add up to one histogram; the bin that holds the rank gives the next
    byte of the answer, and after four bytes the prefix *is* the answer, bit for bit. N is the sum
    of the first histogram. A rank above N gives +inf, and nothing further is asked. Returns the
    value, N, K and the rank.
    """
    prefix = remaining = rank = n = clients = 0
    for depth in range(_BYTES):
        replies = yield {"depth": np.array([depth]), "prefix": np.array([prefix], np.uint32)}
        cumulative = np.cumsum(sum(reply["counts"] for reply in replies))
        if depth == 0:
            n, clients = int(cumulative[-1]), len(replies)
            rank = remaining = rank_of(n, clients)
            if rank > n:
                return float("inf"), n, clients, rank
        byte = int(np.searchsorted(cumulative, remaining))
        if byte > 0:
            remaining -= int(cumulative[byte - 1])
        prefix = prefix << 8 | byte
    return float(from_order_key(prefix)), n, clients, rank


def exact_server(alpha: float) -> Server[Threshold]:
    """Theorem 1: q̂ is the ⌈(1−α)(N+K)⌉-th smallest calibration score.

    K counts every client, also one without calibration scores: a test node may be its.
    """
    q_hat, n, clients, rank = yield from order_statistic_server(
        lambda n, clients: exact_rank(alpha, n, clients)
    )
    return Threshold(q_hat, n, clients, rank, _full_sets_note(alpha, n, clients, rank))


def mixture_server(alpha: float, shares: Shares | None = None) -> Server[Threshold]:
    """q̂ is the smallest score q with Σ_k p_k · #{scores of client k ≤ q}/(n_k + 1) ≥ 1 − α.

    p_k is client k's share of ``shares``, the probability that a test node is its; ``None`` means
    n_k + 1, and then this is Theorem 1's q̂. The clients send what they send for ``exact``; the
    server weighs the counts before it adds them, in whole numbers. A client without a share has
    no say; what a client without scores has as its share counts as never covered.
    """
    check_alpha(alpha)
    replies = yield {"depth": np.array([0]), "prefix": np.array([0], np.uint32)}
    n = [int(reply["counts"].sum()) for reply in replies]
    weights, scale = mixture_weights(n, shares)
    remaining, reach = exact_rank(alpha, scale, 0), _weigh(weights, n)
    note = _mixture_note(alpha, n, weights, scale, full=reach < remaining)
    if reach < remaining:
        return Threshold(float("inf"), sum(n), len(n), 0, note)
    prefix = 0
    for depth in range(1, _BYTES + 1):
        # One row a byte: the clients' numbers of scores up to it.
        below = np.cumsum([reply["counts"] for reply in replies], axis=1).T.tolist()
        byte = bisect_left(below, remaining, key=lambda counts: _weigh(weights, counts))
        if byte > 0:
            remaining -= _weigh(weights, below[byte - 1])
        prefix = prefix << 8 | byte
        if depth < _BYTES:
            replies = yield {"depth": np.array([depth]), "prefix": np.array([prefix], np.uint32)}
    return Threshold(float(from_order_key(prefix)), sum(n), len(n), 0, note)


def _weigh(weights: Sequence[int], counts: Sequence[int]) -> int:
    return sum(weight * count for weight, count in zip(weights, counts, strict=True))


def pooled_rank_server(alpha: float) -> Server[Threshold]:
    """q̂ is the ⌈(1−α)(N+1)⌉-th smallest calibration score, as if one client held them all.

    Less cautious than Theorem 1's N + K, and without its finite-sample guarantee: where clients
    differ, coverage can lie below 1 − α, by up to (1 − α)(K − 1)/(N + K) under its draw of a node.
    """
    q_hat, n, clients, rank = yield from order_statistic_server(
        lambda n, _clients: exact_rank(alpha, n)
    )
    return Threshold(q_hat, n, clients, rank, _full_sets_note(alpha, n, clients, rank))


def count_client(nodes: int, _query: Message) -> Message:
    """Tell how many nodes there are: test nodes, for the shares of :func:`mixture_server`."""
    return {"n": np.array([nodes])}


def count_server() -> Server[list[int]]:
    """Ask every client for its number of nodes."""
    replies = yield {}
    return [int(reply["n"][0]) for reply in replies]


def average_client(scores: ArrayLike, query: Message) -> Message:
    """Send the local conformal quantile, the ⌈(1−α)(n_k+1)⌉-th smallest score, and n_k.

    Where n_k < 1/α − 1 that rank is above n_k and the local quantile +∞; as is usual where
    quantiles are averaged, the largest score stands in for it. No scores, no quantile.
    """
    ordered = np.sort(check_scores(scores).ravel())
    rank = exact_rank(float(query["alpha"][0]), len(ordered))
    return {"quantile": ordered[: min(rank, len(ordered))][-1:], "n": np.array([len(ordered)])}


def average_server(alpha: float) -> Server[Threshold]:
    """Take the plain mean of the clients' local quantiles (the paper's main results).

    Without a guarantee: where clients differ, coverage can fall far below 1 − α.
    """
    replies = yield {"alpha": np.array([check_alpha(alpha)])}
    n_k = np.array([int(reply["n"][0]) for reply in replies])
    quantiles = np.array(
        [reply["quantile"][0] if n else 0 for reply, n in zip(replies, n_k, strict=True)]
    )
    return Threshold(
        q_hat=float(mean_quantile(quantiles, n_k > 0)),
        n_calibration=int(n_k.sum()),
        clients=len(replies),
        rank=0,
        note=_averaging_note(alpha, n_k),
    )


def mean_quantile(quantiles: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Mean over the last axis of the clients that are present, +inf where none is; float32.

    The sum runs client after client, so that one conversation and many re-splits at once agree to
    the last bit.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        total = np.cumsum(np.where(present, quantiles.astype(np.float64), 0.0), axis=-1)[..., -1]
        mean = (total / present.sum(axis=-1)).astype(np.float32)
    mean = np.where(present.any(axis=-1), mean, np.float32(np.inf))
    if np.isnan(mean).any():
        raise DataError("The clients' quantiles contain both -inf and +inf and have no mean.")
    return mean + np.float32(0.0)


def tdigest_server(alpha: float) -> Server[Threshold]:
    """Merge the clients' T-Digests and ask for the rank of Theorem 1 (no guarantee: a sketch)."""
    replies = yield {}
    return tdigest_thresholds(replies, [alpha])[0]


def tdigest_thresholds(replies: Sequence[Message], alphas: Sequence[float]) -> list[Threshold]:
    """Merge the clients' T-Digests once and ask the merged sketch for the rank of every level."""
    sketch = tdigest.merge([reply["sketch"] for reply in replies])
    n, clients = sketch.get_total_weight(), len(replies)
    thresholds = []
    for alpha in alphas:
        rank = exact_rank(alpha, n, clients)
        q_hat = tdigest.order_statistic(sketch, rank) if rank <= n else float("inf")
        note = _full_sets_note(alpha, n, clients, rank)
        thresholds.append(Threshold(q_hat, n, clients, rank, note))
    return thresholds


@dataclass(frozen=True)
class Rule:
    """A quantile rule; ``guarantee`` says whether its q̂ covers 1 − α in finite samples.

    ``server`` takes alpha; where a rule knows shares, :func:`server_of` hands them over.
    """

    name: str
    client: Client[ArrayLike]
    server: Callable[[float], Server[Threshold]]
    guarantee: bool


RULES: dict[str, Rule] = {
    "exact": Rule("exact", histogram_client, exact_server, guarantee=True),
    "mixture": Rule("mixture", histogram_client, mixture_server, guarantee=True),
    "pooled": Rule("pooled", histogram_client, pooled_rank_server, guarantee=False),
    "average": Rule("average", average_client, average_server, guarantee=False),
    "tdigest": Rule("tdigest", tdigest.client, tdigest_server, guarantee=False),
}


def server_of(rule: str, alpha: float, shares: Shares | None = None) -> Server[Threshold]:
    """Return the rule's server for this level; ``shares`` are for ``mixture`` alone."""
    check_rule(rule, shares)
    if rule == "mixture":
        return mixture_server(alpha, shares)
    return RULES[rule].server(alpha)


def check_rule(rule: str, shares: Shares | None = None) -> None:
    """Refuse a rule that does not exist, or shares for one that takes none."""
    if rule not in RULES:
        raise UsageError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}.")
    if shares is not None and rule != "mixture":
        raise UsageError(f"shares are given for the rule {rule!r}; only 'mixture' takes them.")


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
    check_rule(rule, shares)
    if not scores_by_client:
        raise UsageError("scores_by_client is empty; it must hold one array for every client.")
    return converse(
        server_of(rule, check_alpha(alpha), shares),
        RULES[rule].client,
        scores_by_client,
        kind="quantile",
        on_message=on_message,
    )


def _full_sets_note(alpha: float, n: int, clients: int, rank: int) -> str:
    if rank <= n:
        return ""
    return (
        f"alpha = {alpha:g} asks for rank {rank} of {n} calibration scores at {clients} clients: "
        "q_hat is +inf and every set holds all labels."
    )


def _mixture_note(
    alpha: float, n: Sequence[int], weights: Sequence[int], scale: int, *, full: bool
) -> str:
    sentences = []
    silent = [k for k, size in enumerate(n) if size == 0 and weights[k] > 0]
    if silent:
        lost = sum(weights[k] for k in silent) / scale
        sentences.append(
            f"a share of {lost:.3g} of the mixture is at clients without calibration scores "
            f"({', '.join(map(str, silent))}) and counts as never covered, which makes sets larger."
        )
    if full:
        sentences.append(
            f"alpha = {alpha:g} is less than what {sum(n)} calibration scores at {len(n)} clients "
            f"leave open for this mixture, {1 - _weigh(weights, n) / scale:.3g}: "
            "q_hat is +inf and every set holds all labels."
        )
    return " ".join(sentences)


def _averaging_note(alpha: float, n_k: NDArray[np.int_]) -> str:
    small = [str(k) for k, n in enumerate(n_k) if exact_rank(alpha, n) > n]
    if not small:
        return ""
    return (
        f"averaging needs n_k >= 1/alpha - 1 = {1 / alpha - 1:g} nodes at every client; "
        f"too few at client {', '.join(small)}: the largest score stood in, or none was sent."
    )
