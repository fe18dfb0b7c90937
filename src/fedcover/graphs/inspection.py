"""What the facts about a graph and its clients mean for the guarantee.

Everything is known before any training: Theorem 1 asks only how many calibration nodes there are
and at how many clients (docs/guarantee.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.conformal.checks import check_alpha
from fedcover.conformal.order import exact_rank
from fedcover.conformal.rules import coverage_band
from fedcover.graphs.facts import ClientFacts, GraphFacts, client_facts, graph_facts
from fedcover.graphs.partition import Partition
from fedcover.graphs.splits import Role

TEST_SLACK = 0.02
"""Distance up to which test nodes count as spread over the clients as calibration nodes are."""

_NAMED = 5  # clients that a sentence names before it only counts


@dataclass(frozen=True)
class Promise:
    """What Theorem 1 promises at one level, and whether there are enough calibration nodes.

    The threshold is the ``rank``-th smallest of N scores. If that is above N, it is +∞ and every
    set holds all labels; ``needed`` is the least N that suffices at these K clients. A client
    needs ``needed_alone`` nodes, 1/α − 1, for a threshold of its own (docs/guarantee.md).
    """

    alpha: float
    rank: int
    holds: bool
    needed: int
    needed_alone: int
    band: tuple[float, float]  # expected coverage: 1 − α and 1 − α + K/(N + K)
    too_small: tuple[str, ...]  # clients below needed_alone
    small_classes: tuple[str, ...]  # those without a threshold of their own (Theorem 3)
    small_groups: tuple[str, ...]  # likewise


@dataclass(frozen=True)
class Inspection:
    """A graph, its clients, and the promises; ``n_calibration`` is the theorem's N."""

    graph: GraphFacts
    partition: str
    clients: tuple[ClientFacts, ...]
    n_calibration: int | None
    slack: float | None  # K/(N + K)
    test_distance: float | None  # total variation: clients' shares of test nodes, and the promise's
    promises: tuple[Promise, ...]

    def sentences(self) -> list[str]:
        """What the numbers mean, in plain words, the graph's first."""
        said = _of_graph(self.graph) + self._of_clients()
        if self.n_calibration is None or self.slack is None:
            return said
        said.append(
            f"{_many(self.n_calibration, 'calibration node')} at "
            f"{_many(len(self.clients), 'client')}: expected coverage is at least 1 − α and at "
            f"most K/(N + K) = {self.slack:.4f} above it (that end for scores without ties)."
        )
        if self._is_uneven:
            said.append(
                "Test nodes are not spread over the clients as calibration nodes are (total "
                f"variation {self.test_distance:.2f}): the promise is for clients weighed by their "
                "calibration nodes; --quantiles mixture gives one for the test nodes' mean."
            )
        return said + [text for promise in self.promises for text in self._of_promise(promise)]

    @property
    def _is_uneven(self) -> bool:
        return self.test_distance is not None and self.test_distance > TEST_SLACK

    def _of_clients(self) -> list[str]:
        said = []
        if self.graph.own_clients and self.partition != "given":
            said.append(
                f"The graph names clients of its own, {self.graph.own_clients:,}, which are not "
                "used: --partition given takes them."
            )
        # Both its ends count a cut edge.
        cut = sum(client.cut_edges for client in self.clients) // 2
        if cut:
            said.append(
                f"{_many(cut, 'cut edge')}, {cut / self.graph.edges:.1%} of all: no client sees "
                "them, which can make sets larger, but the promise does not rest on them."
            )
        return said

    def _of_promise(self, promise: Promise) -> list[str]:
        level = f"alpha = {promise.alpha:g}"
        if promise.holds:
            low, high = promise.band
            weighed = ", were they spread as the calibration nodes are" if self._is_uneven else ""
            said = [
                f"{level}: enough calibration nodes; expect between {low:.4g} and {high:.4f} of "
                f"the test nodes to be covered{weighed}."
            ]
        else:
            said = [
                f"{level}: too few calibration nodes, {self.n_calibration:,}, where "
                f"{_many(len(self.clients), 'client')} must have {promise.needed:,}; every set "
                "would hold all labels. Take fewer clients or a larger alpha."
            ]
        if promise.too_small:
            one = len(promise.too_small) == 1
            alone = "; nothing can be promised there alone"
            if promise.holds:
                alone += ", while the promise for all clients together stands"
            said.append(
                f"{level}: {'client' if one else 'clients'} {_some(promise.too_small)} "
                f"{'has' if one else 'have'} fewer than the {promise.needed_alone:,} "
                f"calibration nodes that a threshold of one's own needs (1/alpha − 1){alone}."
            )
        for kind, names in (("class", promise.small_classes), ("group", promise.small_groups)):
            if names:
                said.append(
                    f"{level}: with --calibrate {kind}, {_some(names)} would have too few "
                    "calibration nodes for a promise of their own."
                )
        return said


def inspect(
    graph: Data,
    partition: Partition,
    roles: NDArray[np.integer] | None,
    alphas: Sequence[float] = (0.05, 0.1, 0.2),
) -> Inspection:
    """Describe a graph that is divided among clients, and what can be promised for it.

    ``roles`` (n,) are those that a run would draw; None where it could not, and then nothing is
    said about promises. Labels below 0 are unknown ones. Linear in nodes and edges.
    """
    K = partition.clients
    counts = None
    if roles is not None:
        counts = np.bincount(partition.client[roles == Role.CALIB], minlength=K)
    clients = client_facts(graph, partition, counts)
    promises: tuple[Promise, ...] = ()
    n = slack = distance = None
    if roles is not None and counts is not None:
        n = int(counts.sum())
        slack = K / (n + K)
        test = np.bincount(partition.client[roles == Role.TEST], minlength=K)
        distance = float(np.abs(test / test.sum() - (counts + 1) / (n + K)).sum() / 2)
        held = _held(graph, partition, roles)
        promises = tuple(_promise(alpha, counts, partition.names, held) for alpha in alphas)
    return Inspection(graph_facts(graph), partition.method, clients, n, slack, distance, promises)


def _held(
    graph: Data, partition: Partition, roles: NDArray[np.integer]
) -> dict[str, dict[str, tuple[int, int]]]:
    """N_g and K_g by kind and name: calibration nodes, and the clients that have them.

    Besides a client, a class or a group may have a threshold of its own.
    """
    K, calib, held = partition.clients, roles == Role.CALIB, {}
    for kind, member, names in (("class", "y", "label_names"), ("group", "group", "group_names")):
        if member in graph:
            pair = graph[member].numpy()[calib] * K + partition.client[calib]
            table = np.bincount(pair, minlength=len(graph[names]) * K).reshape(-1, K)
            sizes = zip(table.sum(axis=1).tolist(), (table > 0).sum(axis=1).tolist(), strict=True)
            held[kind] = dict(zip(graph[names], sizes, strict=True))
    return held


def _promise(
    alpha: float,
    counts: NDArray[np.int64],
    names: Sequence[str],
    held: Mapping[str, Mapping[str, tuple[int, int]]],
) -> Promise:
    n, K = int(counts.sum()), len(counts)
    rank = exact_rank(alpha, n, K)
    holds = rank <= n
    alone = _least(alpha, 1)
    return Promise(
        alpha=alpha,
        rank=rank,
        holds=holds,
        needed=_least(alpha, K),
        needed_alone=alone,
        band=coverage_band(alpha, n, K) if holds else (1.0, 1.0),
        too_small=tuple(names[int(k)] for k in np.flatnonzero(counts < alone)),
        small_classes=_small(alpha, held.get("class", {})),
        small_groups=_small(alpha, held.get("group", {})),
    )


def _small(alpha: float, held: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    return tuple(name for name, (n, clients) in held.items() if exact_rank(alpha, n, clients) > n)


def _least(alpha: float, clients: int) -> int:
    """The least N with ⌈(1−α)(N+K)⌉ ≤ N: K(1/α − 1), in the fractions of :func:`exact_rank`."""
    share = Fraction(check_alpha(alpha)).limit_denominator(10**12)
    if share == 0:  # an alpha below 1e-12, for which no number of nodes that exist suffices
        share = Fraction(check_alpha(alpha))
    return max(1, ceil(clients * (1 / share - 1)))


def _of_graph(facts: GraphFacts) -> list[str]:
    said = []
    if facts.isolated:
        said.append(
            f"{_many(facts.isolated, 'node')} without an edge: predicted from their own features."
        )
    if facts.unlabelled:
        said.append(
            f"{_many(facts.unlabelled, 'node')} without a label: neighbours of the others, but "
            "never used to train, calibrate or test."
        )
    if facts.missing:
        said.append(
            f"{_many(sum(facts.missing.values()), 'empty value')} in {_some(list(facts.missing))}: "
            "a number becomes its column's mean over the training nodes, a word no category."
        )
    never = [name for name, count in facts.labels.items() if count == 0]
    if never:
        labels = "the label" if len(never) == 1 else "the labels"
        said.append(f"No node has {labels} {_some(never)}: it can stand in a set, never be true.")
    return said


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
