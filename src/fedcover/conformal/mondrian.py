"""A threshold for every group: calibration by client, by class, or by any group of nodes.

Vovk's Mondrian rule with the distributed quantile: group g, with N_g calibration scores, takes the
(⌈(1−α)N_g⌉ + 1)-th smallest of *its* scores, or what else the rule asks for, and the theorem holds
inside the group (docs/guarantee.md, "By client, class or group"). A group is a client, a column
that is known before the label is, or the label itself.

All groups are asked in the same four rounds, beside the pooled talk. A group whose rank lies above
N_g falls back to the pooled q̂, but never below its own largest score: a smaller alpha then never
has a smaller threshold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal import order, protocol, rules
from fedcover.conformal.checks import check_indices, check_scores
from fedcover.conformal.protocol import Message, Server
from fedcover.conformal.rules import Threshold
from fedcover.conformal.targets import NO_TERMS, Target, Terms
from fedcover.errors import UsageError

GROUP_RULES = ("exact", "theorem1", "pooled")
"""The quantile rules that groups can be calibrated by: those that find an order statistic."""

Grouped = tuple[ArrayLike, ArrayLike]
"""What a client holds: its calibration scores, and the group of each."""


@dataclass(frozen=True)
class GroupThreshold(Threshold):
    """One group's threshold; ``n_calibration``, ``clients`` and ``rank`` are the group's own.

    ``clients`` counts those with a calibration score of the group. Where ``fell_back``, the rank
    lies above N_g, and ``q_hat`` is the pooled one or the group's largest score, whichever is more.
    """

    fell_back: bool = False


def check_group_rule(rule: str) -> None:
    """Refuse a rule that knows no groups."""
    rules.check_rule(rule)
    if rule not in GROUP_RULES:
        raise UsageError(
            f"rule is {rule!r}, which finds one threshold for all; with a threshold for each group "
            f"it must be one of {', '.join(GROUP_RULES)}."
        )


def group_client(local: Grouped, query: Message) -> Message:
    """Answer talk 0, the pooled one, and talk g + 1 of every group g that has scores here.

    So calibration by client costs each of them two histograms a round.
    """
    scores, groups = check_scores(local[0]).ravel(), np.asarray(local[1])
    by_group = np.argsort(groups, kind="stable")
    names, starts = np.unique(groups[by_group], return_index=True)
    # The piece before the first start is empty, and the only one where there are no scores.
    own = np.split(scores[by_group], starts)[1:]
    held = {0: scores} | dict(zip((names + 1).tolist(), own, strict=True))
    return protocol.answer_each(order.histogram_client, held, query)


def group_server(
    alpha: float, groups: int, rule: str = "exact", terms: Terms = NO_TERMS
) -> Server[tuple[Threshold, list[GroupThreshold]]]:
    """Find the pooled threshold and that of every group 0 … G − 1, in four rounds for all.

    The shares of the ``terms`` are for the pooled one; inside a group, clients count by their
    calibration scores in it.
    """
    check_group_rule(rule)
    talks = [_own_server(alpha, rule, replace(terms, shares=None)) for _ in range(groups)]
    pooled, *own = yield from protocol.side_by_side([rules.server_of(rule, alpha, terms), *talks])
    return pooled, [_or_pooled(threshold, pooled) for threshold in own]


def group_thresholds(
    scores_by_client: Sequence[ArrayLike],
    groups_by_client: Sequence[ArrayLike],
    alpha: float,
    *,
    groups: int | None = None,
    rule: str = "exact",
    terms: Terms = NO_TERMS,
    on_message: protocol.Listener | None = None,
) -> list[GroupThreshold]:
    """Find q̂ of every group from the clients' calibration scores, all clients in this process.

    ``groups_by_client[k][i]`` is the group, 0 … G − 1, of client k's score i: its label for
    calibration by class, k for calibration by client. ``groups`` is G, the largest plus one unless
    given; give it where the last groups may have no calibration score.
    """
    if not scores_by_client or len(scores_by_client) != len(groups_by_client):
        raise UsageError(
            f"There are scores of {len(scores_by_client)} clients and groups of "
            f"{len(groups_by_client)}; each must hold one array for every client."
        )
    seen = max(int(np.max(own, initial=-1)) + 1 for own in groups_by_client)
    count = seen if groups is None else groups
    local: list[Grouped] = [
        (scores, check_indices(f"groups_by_client[{k}]", own, np.size(scores), count))
        for k, (scores, own) in enumerate(zip(scores_by_client, groups_by_client, strict=True))
    ]
    server = group_server(alpha, count, rule, terms)
    _, found = protocol.converse(
        server, group_client, local, kind="quantile", on_message=on_message
    )
    return found


def _own_server(alpha: float, rule: str, terms: Terms) -> Server[Threshold]:
    """A group's own order statistic: its largest score where the rank is too high, −inf of none."""

    def target(n: Sequence[int]) -> Target:
        return Target((1,) * len(n), max(min(_rank(rule, alpha, sum(n), len(n), terms), sum(n)), 1))

    q_hat, n = yield from order.search(target)
    rank = _rank(rule, alpha, sum(n), len(n), terms)
    return Threshold(q_hat if any(n) else -float("inf"), sum(n), len(n), rank)


def _rank(rule: str, alpha: float, n: int, holders: int, terms: Terms) -> int:
    """A group's rank: all its scores weigh the same, however its holders share them."""
    target = rules.RULES[rule].target
    assert target is not None
    return target(alpha, [n - holders + 1, *[1] * (holders - 1)], terms).reach if n else 1


def _or_pooled(own: Threshold, pooled: Threshold) -> GroupThreshold:
    q_hat, n, clients, rank, note = own.q_hat, own.n_calibration, own.clients, own.rank, ""
    if rank > n:
        largest = q_hat > pooled.q_hat
        note = (
            f"rank {rank} of {n} calibration scores at {clients} clients does not exist: "
            f"{'its largest score' if largest else 'the pooled threshold'} stands in. "
            f"{'' if largest else pooled.note}"
        ).rstrip()
        q_hat = max(q_hat, pooled.q_hat)
    return GroupThreshold(q_hat, n, clients, rank, note, fell_back=rank > n)


def group_quantiles_over_resplits(
    rule: str,
    true_scores: ArrayLike,
    client: ArrayLike,
    group: ArrayLike,
    is_calibration: NDArray[np.bool_],
    alphas: Sequence[float],
    *,
    clients: int | None = None,
    groups: int | None = None,
    terms: Terms = NO_TERMS,
) -> NDArray[np.float32]:
    """q̂ of every re-split, level and group: shape (R, len(alphas), G).

    As :func:`~fedcover.conformal.quantile_over_resplits`, with the ``group`` (n,) of every node.
    Bit for bit what :func:`group_thresholds` finds. ``groups`` is G, the largest plus one unless
    given.
    """
    check_group_rule(rule)
    splits = rules.check_resplits(true_scores, client, is_calibration, clients)
    G = int(np.max(group, initial=-1)) + 1 if groups is None else groups
    member = check_indices("group", group, len(splits.scores), G)
    pooled = rules.RULES[rule].resplits(splits, alphas, terms)
    table = order.OrderStatistics(splits.scores, member, splits.mask, G)
    n, holders, inside = table.counts, _holders(splits, member, G), replace(terms, shares=None)
    ranks = order.over(
        lambda pair: [
            _rank(rule, alpha, *divmod(pair, splits.clients + 1), inside) for alpha in alphas
        ],
        n * (splits.clients + 1) + holders,
    )
    own = np.where(n > 0, table.at(np.minimum(ranks, n)), np.float32(-np.inf))
    q_hats = np.where(ranks > n, np.maximum(pooled.T[..., None], own), own)  # levels first
    return q_hats.transpose(1, 0, 2)


def _holders(splits: rules.Resplits, member: NDArray[np.intp], G: int) -> NDArray[np.int64]:
    """How many clients have a calibration score of each group: shape (R, G)."""
    # Of all pairs of a group and a client, few exist where groups are clients.
    K = splits.clients
    pairs, pair = np.unique(member * K + splits.owner, return_inverse=True)
    held = np.empty((len(splits.mask), G), dtype=np.int64)
    for r, row in enumerate(splits.mask):
        there = np.bincount(pair[row], minlength=len(pairs)) > 0
        held[r] = np.bincount(pairs[there] // K, minlength=G)
    return held
