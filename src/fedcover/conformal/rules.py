"""Thresholds by any quantile rule: what every client sends, and what the server makes of it.

``exact`` is the default: the sharpest rule that has a proof, for nodes that are spread over the
clients in any known way. ``theorem1`` takes the paper's rank, at least as large where
(1 − α)K ≥ 1. The proofs are in ``docs/guarantee.md``. The others carry no finite-sample guarantee
when clients differ: ``pooled`` takes the rank that one owner of all scores would, and ``average``
and ``tdigest`` are the paper's two approximations, here to reproduce it. A client's local data are
its calibration scores.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal import order, targets
from fedcover.conformal.checks import Shares, check_alpha, check_indices, check_scores, refuse
from fedcover.conformal.protocol import Client, Listener, Message, Server, converse
from fedcover.conformal.targets import NO_TERMS, Target, Terms, exact_rank
from fedcover.errors import DataError, UsageError

COMPRESSION = 200
"""Of a T-Digest, DataSketches' own default: about 3 kB a client, rank errors below 0.02 at the
usual levels."""

Scores = NDArray[np.float32]
Band = tuple[float, float | None]
Targeting = Callable[[float, Sequence[int], Terms], Target]


@dataclass(frozen=True)
class Threshold:
    """The server's answer: q̂ and how it came about.

    ``q_hat`` is a float32 value or +inf. ``rank`` is the rank among the pooled scores, 0 where
    clients' scores weigh differently. ``note`` is empty or a sentence the user must see.
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
    """A quantile rule; only ``exact`` looks at the terms.

    ``client`` answers a query, ``server`` finds the threshold of a level, ``resplits`` q̂ of every
    re-split and level, bit for bit what the conversation finds. ``band`` takes alpha, the clients'
    numbers of scores and the terms; None: the rule has no finite-sample guarantee. ``target`` is
    what a rule that finds an order statistic looks for.
    """

    client: Client[ArrayLike]
    server: Callable[[float, Terms], Server[Threshold]]
    resplits: Callable[[Resplits, Sequence[float], Terms], Scores]
    band: Callable[[float, Sequence[int], Terms], Band] | None = None
    target: Targeting | None = None

    @property
    def guarantee(self) -> bool:
        """Whether its q̂ covers 1 − α in finite samples."""
        return self.band is not None


# exact, theorem1, pooled: an order statistic of weighed counts.


def _counted(target: Targeting, *, guarantee: bool = True) -> Rule:
    """The rule that looks for this target; clients send histograms."""

    def server(alpha: float, terms: Terms = NO_TERMS) -> Server[Threshold]:
        q_hat, n = yield from order.search(lambda n: target(alpha, n, terms))
        return threshold_of(q_hat, alpha, n, target(alpha, n, terms))

    def band(alpha: float, n: Sequence[int], terms: Terms = NO_TERMS) -> Band:
        level, slack = 1.0 - check_alpha(alpha), target(alpha, n, terms).slack
        return level, None if slack is None else level + slack

    resplits = partial(_counted_resplits, target)
    return Rule(order.histogram_client, server, resplits, band if guarantee else None, target)


def threshold_of(q_hat: float, alpha: float, n: Sequence[int], target: Target) -> Threshold:
    """q̂ with what a user must know of it."""
    sentences = []
    if target.unheard:
        sentences.append(
            f"a share of {target.unheard:.3g} of the nodes asked about is at clients without "
            "calibration scores and counts as never covered, which makes sets larger."
        )
    if not target.reached(n):
        asks = f"alpha = {alpha:g} asks for "
        asks += f"rank {target.rank} of" if target.rank else "more than the"
        sentences.append(
            f"{asks} {sum(n)} calibration scores at {len(n)} client{'s' * (len(n) > 1)}: "
            "q_hat is +inf and every set holds all labels."
        )
    return Threshold(q_hat, sum(n), len(n), target.rank, " ".join(sentences))


def _counted_resplits(
    target: Targeting, splits: Resplits, alphas: Sequence[float], terms: Terms
) -> Scores:
    """Floats find the place to within their rounding, whole numbers decide inside it."""
    ascending = np.argsort(splits.scores, kind="stable")
    scores, owner, K = splits.scores[ascending], splits.owner[ascending], splits.clients
    q_hats = np.full((len(splits.mask), len(alphas)), np.inf, dtype=np.float32)
    known: dict[tuple[int, ...], list[Target]] = {}  # by sizes: re-splits mostly keep them
    for r, row in enumerate(splits.mask):
        places = np.flatnonzero(row[ascending])
        held = owner[places]
        sizes = tuple(np.bincount(held, minlength=K).tolist())
        if sizes not in known:
            known[sizes] = [target(alpha, sizes, terms) for alpha in alphas]
        for a, aim in enumerate(known[sizes]):
            if aim.reached(sizes):
                place = aim.reach - 1 if aim.rank else _place(held, sizes, aim)
                q_hats[r, a] = scores[places[place]]
    return q_hats


def _place(held: NDArray[np.intp], sizes: Sequence[int], aim: Target) -> int:
    """The first place at which scores of these owners, in ascending order, reach the target."""
    total = aim.total(sizes)
    reached = np.cumsum(np.array([weight / total for weight in aim.weights])[held])

    def exactly(end: int) -> int:
        counts = np.bincount(held[: end + 1], minlength=len(sizes)).tolist()
        return sum(weight * count for weight, count in zip(aim.weights, counts, strict=True))

    # A sum of n numbers with total at most 1 is off by at most n roundings; so is each part.
    slack = 4 * (len(held) + 1) * np.finfo(np.float64).eps
    low, high = np.searchsorted(reached, aim.reach / total + np.array([-slack, slack]))
    return bisect_left(range(len(held)), aim.reach, int(low), int(high), key=exactly)


# average: the mean of the clients' own quantiles.


def average_client(scores: ArrayLike, query: Message) -> Message:
    """Send the local conformal quantile, the ⌈(1−α)(n_k+1)⌉-th smallest score, and n_k.

    Where that rank is above n_k the largest score stands in, as is usual where quantiles are
    averaged. No scores, no quantile.
    """
    ordered = np.sort(check_scores(scores).ravel())
    rank = exact_rank(float(query["alpha"][0]), len(ordered))
    return {"quantile": ordered[: min(rank, len(ordered))][-1:], "n": np.array([len(ordered)])}


def average_server(alpha: float, _terms: Terms = NO_TERMS) -> Server[Threshold]:
    """Take the plain mean of the clients' local quantiles (the paper's main results).

    Without a guarantee: where clients differ, coverage can fall far below 1 − α.
    """
    replies = yield {"alpha": np.array([check_alpha(alpha)])}
    n_k = np.array([int(reply["n"][0]) for reply in replies])
    quantiles = np.array([reply["quantile"][0] if reply["n"][0] else 0 for reply in replies])
    small = [str(k) for k, n in enumerate(n_k) if exact_rank(alpha, n) > n]
    note = (
        f"averaging needs n_k >= 1/alpha - 1 = {1 / alpha - 1:g} nodes at every client; "
        f"too few at client {', '.join(small)}: the largest score stood in, or none was sent."
    )
    q_hat = float(_mean_quantile(quantiles, n_k > 0))
    return Threshold(q_hat, int(n_k.sum()), len(replies), 0, note if small else "")


def average_resplits(splits: Resplits, alphas: Sequence[float], _terms: Terms) -> Scores:
    """The same for re-splits."""
    table = order.OrderStatistics(splits.scores, splits.owner, splits.mask, splits.clients)
    n = table.counts
    ranks = order.over(lambda size: [exact_rank(alpha, size) for alpha in alphas], n)
    quantiles = table.at(np.minimum(ranks, n))
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


def sketch_server(alpha: float, _terms: Terms = NO_TERMS) -> Server[Threshold]:
    """Merge the clients' T-Digests and ask for the rank of Theorem 1 (no guarantee: a sketch)."""
    replies = yield {}
    return _of_sketches(replies, [alpha])[0]


def sketch_resplits(splits: Resplits, alphas: Sequence[float], _terms: Terms) -> Scores:
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
        target = targets.theorem1(alpha, [n, *[0] * (clients - 1)])
        rank = target.rank
        q_hat = np.float32(sketch.get_quantile((rank - 0.5) / n) if rank <= n else np.inf)
        thresholds.append(threshold_of(float(q_hat), alpha, [n, *[0] * (clients - 1)], target))
    return thresholds


def _digest() -> Any:
    try:
        from datasketches import tdigest_double
    except ImportError as error:
        raise UsageError("The tdigest rule needs the package datasketches.") from error
    return tdigest_double


# What is promised.


def beta_binomial(alpha: float, n: int, m: int) -> tuple[float, float]:
    """Mean and standard deviation of the empirical coverage over m test nodes after n calibration.

    For one client, exchangeable scores without ties, rank r = ⌈(1−α)(n+1)⌉: the number covered is
    BetaBinomial(m, r, n+1−r). If r > n, q̂ is +∞ and coverage is 1 without spread.
    """
    a = exact_rank(alpha, n)
    if a > n:
        return 1.0, 0.0
    b, total = n + 1 - a, n + 1
    return a / total, sqrt(a * b * (total + m) / (m * total**2 * (total + 1)))


RULES: dict[str, Rule] = {
    "exact": _counted(targets.exact),
    "theorem1": _counted(targets.theorem1),
    "pooled": _counted(targets.pooled, guarantee=False),
    "average": Rule(average_client, average_server, average_resplits),
    "tdigest": Rule(sketch_client, sketch_server, sketch_resplits),
}


# Thresholds by any of them.


def check_rule(rule: str, terms: Terms = NO_TERMS) -> None:
    """Refuse a rule that does not exist, or terms for one that takes none."""
    if rule not in RULES:
        raise UsageError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}.")
    for name, value in vars(terms).items():
        if value is not None and rule != "exact":
            raise UsageError(f"{name} is given for the rule {rule!r}; only 'exact' takes it.")


def server_of(rule: str, alpha: float, terms: Terms = NO_TERMS) -> Server[Threshold]:
    """Return the rule's server for this level."""
    check_rule(rule, terms)
    return RULES[rule].server(check_alpha(alpha), terms)


def coverage_band(
    alpha: float,
    n: Sequence[int],
    rule: str = "exact",
    *,
    shares: Shares | None = None,
    confidence: float | None = None,
) -> Band:
    """Where the expected coverage lies, for n_k calibration scores at client k.

    The lower end is 1 − α; the upper one supposes scores without ties, None: there is none.
    """
    check_rule(rule, terms := Terms(shares, confidence))
    band = RULES[rule].band
    if band is None:
        raise UsageError(f"rule is {rule!r}, which promises no coverage.")
    return band(alpha, n, terms)


def calibrate(
    scores_by_client: Sequence[ArrayLike],
    alpha: float,
    rule: str = "exact",
    *,
    shares: Shares | None = None,
    confidence: float | None = None,
    on_message: Listener | None = None,
) -> Threshold:
    """Find q̂ from every client's calibration scores, all clients in this process.

    Args:
        scores_by_client: One array for each client.
        alpha: The error rate; sets hold the true label with probability 1 − alpha.
        rule: One of ``RULES``.
        shares: How the nodes asked about are spread over the clients, as numbers of any common
            scale; they must not come from the scores. None: as the calibration scores are.
        confidence: How sure it is that these very calibration scores give the level; None: the
            level holds on average over calibration sets.
        on_message: Called with every message.
    """
    server = server_of(rule, alpha, Terms(shares, confidence))
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
    confidence: float | None = None,
) -> NDArray[np.float32]:
    """q̂ of every re-split and level: shape (R, len(alphas)), the conversation's bit for bit.

    ``true_scores`` and ``client`` are (n,), over all calibration and test nodes; row r of
    ``is_calibration`` (R, n) marks the calibration nodes of re-split r. ``clients`` is K, the
    largest index plus one unless given; give it where the last clients may hold no node.
    ``shares`` and ``confidence`` are as for :func:`calibrate`, the same in every re-split.
    """
    check_rule(rule, terms := Terms(shares, confidence))
    splits = check_resplits(true_scores, client, is_calibration, clients)
    return RULES[rule].resplits(splits, alphas, terms)


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
