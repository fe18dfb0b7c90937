"""A threshold for every group: calibration by client, by class, or by any group of nodes.

Vovk's Mondrian rule with the distributed quantile: group g, with N_g calibration scores at K_g
clients, takes the ⌈(1−α)(N_g+K_g)⌉-th smallest of *its* scores, and Theorem 1 holds inside the
group (docs/guarantee.md, "By client, class or group"). A group is a client, a column that is known
before the label is, or the label itself; the last is why a set then compares each label with a
threshold of its own.

All groups are asked in the same four rounds, beside the pooled talk. A group whose rank lies above
N_g, which its counts and alpha alone decide, falls back to the pooled q̂, but never below its own
largest score: a smaller alpha then never has a smaller threshold, and the group keeps the highest
level that its counts can carry, 1 − K_g/(N_g+K_g).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import check_alpha, check_indices, check_scores
from fedcover.conformal.order import exact_rank
from fedcover.conformal.protocol import (
    Listener,
    Message,
    Result,
    Server,
    converse,
    parts,
    prefixed,
    side_by_side,
)
from fedcover.conformal.quantiles import (
    Threshold,
    check_rule,
    histogram_client,
    order_statistic_server,
    server_of,
)
from fedcover.errors import UsageError

GROUP_RULES = ("exact", "pooled")
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
    check_rule(rule)
    if rule not in GROUP_RULES:
        raise UsageError(
            f"rule is {rule!r}, which finds one threshold for all; with a threshold for each group "
            f"it must be one of {', '.join(GROUP_RULES)}."
        )


def group_client(local: Grouped, query: Message) -> Message:
    """Answer the pooled talk, and those of the groups that this client has scores of.

    Talk 0 is the pooled one and talk g + 1 that of group g. A group without scores here is not
    answered, so that calibration by client costs each of them two histograms a round.
    """
    scores = check_scores(local[0]).ravel()
    held = {0: scores} | {g + 1: own for g, own in _by_group(scores, np.asarray(local[1])).items()}
    asked = [talk for talk in query["asked"].tolist() if talk in held]
    reply: dict[str, NDArray[Any]] = {}
    for talk, own in parts(query, asked).items():
        reply |= prefixed(talk, histogram_client(held[talk], own))
    return reply


def group_server(
    alpha: float, groups: int, rule: str = "exact"
) -> Server[tuple[Threshold, list[GroupThreshold]]]:
    """Find the pooled threshold and that of every group 0 … G − 1, in four rounds for all."""
    check_group_rule(rule)
    talks = [_among_holders(_own_server(alpha, rule)) for _ in range(groups)]
    pooled, *own = yield from side_by_side([server_of(rule, alpha), *talks])
    return pooled, [_or_pooled(threshold, pooled) for threshold in own]


def group_thresholds(
    scores_by_client: Sequence[ArrayLike],
    groups_by_client: Sequence[ArrayLike],
    alpha: float,
    *,
    groups: int | None = None,
    rule: str = "exact",
    on_message: Listener | None = None,
) -> list[GroupThreshold]:
    """Find q̂ of every group from the clients' calibration scores, all clients in this process.

    ``groups_by_client[k][i]`` is the group, 0 … G − 1, of client k's score i: its label for
    calibration by class, k for calibration by client. ``groups`` is G, the largest plus one unless
    given; give it where the last groups may have no calibration score.
    """
    check_group_rule(rule)
    if not scores_by_client or len(scores_by_client) != len(groups_by_client):
        raise UsageError(
            f"There are scores of {len(scores_by_client)} clients and groups of "
            f"{len(groups_by_client)}; each must hold one array for every client."
        )
    seen = max(int(np.max(own, initial=-1)) + 1 for own in groups_by_client)
    count = seen if groups is None else groups
    local: list[Grouped] = []
    for k, (scores, own) in enumerate(zip(scores_by_client, groups_by_client, strict=True)):
        flat = check_scores(scores).ravel()
        local.append((flat, check_indices(f"groups_by_client[{k}]", own, len(flat), count)))
    server = group_server(check_alpha(alpha), count, rule)
    return converse(server, group_client, local, kind="quantile", on_message=on_message)[1]


def _by_group(scores: NDArray[np.float32], groups: NDArray[Any]) -> dict[int, NDArray[np.float32]]:
    """The scores of each group that has some, sorted out once for all groups."""
    order = np.argsort(groups, kind="stable")
    names, starts = np.unique(groups[order], return_index=True)
    # The piece before the first start is empty, and the only one where there are no scores.
    return dict(zip(names.tolist(), np.split(scores[order], starts)[1:], strict=True))


def _among_holders(server: Server[Result]) -> Server[Result]:
    """The same talk with those alone that answer it: the clients that have the group."""
    query = next(server)
    while True:
        replies = yield query
        try:
            query = server.send([reply for reply in replies if reply])
        except StopIteration as stop:
            value: Result = stop.value
            return value


def _own_server(alpha: float, rule: str) -> Server[Threshold]:
    """A group's own order statistic: its largest score where the rank is too high, −inf of none."""

    def rank_of(n: int, clients: int) -> int:
        return exact_rank(alpha, n, clients if rule == "exact" else 1)

    q_hat, n, clients, _ = yield from order_statistic_server(
        lambda n, clients: max(min(rank_of(n, clients), n), 1)
    )
    return Threshold(q_hat if n else -float("inf"), n, clients, rank_of(n, clients), "")


def _or_pooled(own: Threshold, pooled: Threshold) -> GroupThreshold:
    small = own.rank > own.n_calibration
    return GroupThreshold(
        q_hat=max(pooled.q_hat, own.q_hat) if small else own.q_hat,
        n_calibration=own.n_calibration,
        clients=own.clients,
        rank=own.rank,
        note=_note(own, pooled) if small else "",
        fell_back=small,
    )


def _note(own: Threshold, pooled: Threshold) -> str:
    why = (
        f"rank {own.rank} of {own.n_calibration} calibration scores at {own.clients} clients does "
        "not exist"
    )
    largest = own.q_hat > pooled.q_hat
    instead = "its largest score stands in" if largest else "the pooled threshold stands in"
    return f"{why}: {instead}. {'' if largest else pooled.note}".rstrip()
