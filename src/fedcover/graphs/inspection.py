"""What a graph holds, what each client holds of it, and what that means for the guarantee.

Everything is known before any training: Theorem 1 asks only how many calibration nodes there are
and at how many clients (design, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch_geometric.data import Data

from fedcover.conformal.checks import check_alpha
from fedcover.conformal.order import exact_rank
from fedcover.conformal.validity import coverage_band
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.partition import Partition
from fedcover.graphs.splits import Role

TEST_SLACK = 0.02
"""Distance up to which test nodes count as spread over the clients as calibration nodes are."""

_NAMED = 5  # clients that a sentence names before it only counts


@dataclass(frozen=True)
class Features:
    """The columns of ``x``: how many hold only 0 and 1, how they are kept, how many are filled."""

    columns: int
    binary: int
    numeric: int
    sparse: bool
    filled: float  # share of values that are not zero


@dataclass(frozen=True)
class GraphFacts:
    """The graph as a whole; an edge has no direction here and counts once."""

    name: str
    nodes: int
    edges: int
    features: Features
    labels: dict[str, int]  # nodes by label
    unlabelled: int
    isolated: int  # nodes without an edge
    components: int
    largest_component: int
    homophily: float | None  # share of edges that join equal labels; None without such edges
    missing: dict[str, int]  # empty values by the table's column, where it has some


@dataclass(frozen=True)
class ClientFacts:
    """One client's part. ``label_distance`` is the total variation between its label frequencies
    and the whole graph's (0: the same, 1: no label in common)."""

    name: str
    nodes: int
    labelled: int
    labels: dict[str, int]  # nodes by label
    calibration: int | None  # None where the nodes could not be split
    edges: int  # between its own nodes
    cut_edges: int  # to nodes of others, which nobody sees
    cut_share: float  # of all edges that its nodes have
    label_distance: float | None
    homophily: float | None  # of its own edges


@dataclass(frozen=True)
class Promise:
    """What Theorem 1 promises at one level, and whether there are enough calibration nodes.

    The threshold is the ``rank``-th smallest of N scores. If that is above N, it is +∞ and every
    set holds all labels; ``needed`` is the least N that suffices at these K clients. A client
    needs ``needed_alone`` nodes, 1/α − 1, for a threshold of its own (design, rule 5.5).
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
        said = _of_graph(self.graph)
        if self.n_calibration is None or self.slack is None:
            return said
        said.append(
            f"{_many(self.n_calibration, 'calibration node')} at "
            f"{_many(len(self.clients), 'client')}: expected coverage is at least 1 − α and at "
            f"most K/(N + K) = {self.slack:.4f} above it (that end for scores without ties)."
        )
        if self.test_distance is not None and self.test_distance > TEST_SLACK:
            said.append(
                "Test nodes are not spread over the clients as calibration nodes are (total "
                f"variation {self.test_distance:.2f}): the promise is for clients weighed by their "
                "calibration nodes; --quantiles mixture gives one for the test nodes' mean."
            )
        return said + [text for promise in self.promises for text in self._of_promise(promise)]

    def _of_promise(self, promise: Promise) -> list[str]:
        level = f"alpha = {promise.alpha:g}"
        if promise.holds:
            low, high = promise.band
            said = [
                f"{level}: enough calibration nodes; expect between {low:.4g} and {high:.4f} of "
                "the test nodes to be covered."
            ]
        else:
            said = [
                f"{level}: too few calibration nodes, {self.n_calibration:,}, where "
                f"{_many(len(self.clients), 'client')} must have {promise.needed:,}; every set "
                "would hold all labels. Take fewer clients or a larger alpha."
            ]
        if promise.too_small:
            alone = "; nothing can be promised there alone"
            if promise.holds:
                alone += ", while the promise for all clients together stands"
            said.append(
                f"{level}: {_listed(promise.too_small)} fewer than the {promise.needed_alone:,} "
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
    clients = _clients(graph, partition, counts)
    promises: tuple[Promise, ...] = ()
    n = slack = distance = None
    if roles is not None and counts is not None:
        n = int(counts.sum())
        slack = K / (n + K)
        test = np.bincount(partition.client[roles == Role.TEST], minlength=K)
        distance = float(np.abs(test / test.sum() - (counts + 1) / (n + K)).sum() / 2)
        held = {
            kind: _held(member, names, partition, roles)
            for kind, member, names in _memberships(graph)
        }
        promises = tuple(_promise(alpha, counts, partition.names, held) for alpha in alphas)
    return Inspection(_whole(graph), partition.method, clients, n, slack, distance, promises)


def _whole(graph: Data) -> GraphFacts:
    source, target = graph.edge_index.numpy()
    n, y = int(graph.num_nodes), graph.y.numpy()
    ones = np.ones(len(source), dtype=np.int8)
    adjacency = sparse.coo_array((ones, (source, target)), shape=(n, n))
    components, component = connected_components(adjacency, directed=False)
    by_label = np.bincount(y[y >= 0], minlength=len(graph.label_names))
    known, same = _alike(y, source, target)
    return GraphFacts(
        name=str(graph.name),
        nodes=n,
        edges=len(source) // 2,
        features=_features(feature_matrix(graph)),
        labels=dict(zip(graph.label_names, by_label.tolist(), strict=True)),
        unlabelled=int((y < 0).sum()),
        isolated=int((np.bincount(source, minlength=n) == 0).sum()),
        components=int(components),
        largest_component=int(np.bincount(component).max()),
        homophily=_share(int(same.sum()), int(known.sum())),
        missing=_missing(graph),
    )


def _missing(graph: Data) -> dict[str, int]:
    """Numbers that are marked as empty, and nodes without any of a column's words."""
    if "columns" not in graph:
        return {}
    x = feature_matrix(graph)
    totals, gaps = x.sum(axis=0, dtype=np.float64), np.zeros(x.shape[1], dtype=np.int64)
    if "missing" in graph:
        gaps = np.bincount(graph.missing.numpy()[1], minlength=x.shape[1])
    counts, at = {}, 0
    for name, kind in graph.columns:
        words = isinstance(kind, tuple)
        width = len(kind) if words else 1
        counts[name] = len(graph.y) - int(totals[at : at + width].sum()) if words else int(gaps[at])
        at += width
    return {name: count for name, count in counts.items() if count}


def _clients(
    graph: Data, partition: Partition, calibration: NDArray[np.int64] | None
) -> tuple[ClientFacts, ...]:
    K, owner, y = partition.clients, partition.client, graph.y.numpy()
    source, target = graph.edge_index.numpy()
    nodes, labelled = np.bincount(owner, minlength=K), np.bincount(owner[y >= 0], minlength=K)
    of_edge = owner[source]
    kept = of_edge == owner[target]
    # Every edge is there in both directions, so an inner one is seen twice by its client, and a
    # cut one once by each of its two.
    inner = np.bincount(of_edge[kept], minlength=K) // 2
    cut = np.bincount(of_edge[~kept], minlength=K)
    known, same = _alike(y, source, target)
    judged = np.bincount(of_edge[kept & known], minlength=K)
    alike = np.bincount(of_edge[kept & same], minlength=K)
    C = len(graph.label_names)
    table = np.bincount(owner[y >= 0] * C + y[y >= 0], minlength=K * C).reshape(K, C)
    overall = table.sum(axis=0) / max(int(table.sum()), 1)
    facts = []
    for k in range(K):
        distance = None
        if labelled[k]:
            distance = float(np.abs(table[k] / labelled[k] - overall).sum() / 2)
        facts.append(
            ClientFacts(
                name=partition.names[k],
                nodes=int(nodes[k]),
                labelled=int(labelled[k]),
                labels=dict(zip(graph.label_names, table[k].tolist(), strict=True)),
                calibration=None if calibration is None else int(calibration[k]),
                edges=int(inner[k]),
                cut_edges=int(cut[k]),
                cut_share=_share(int(cut[k]), int(inner[k] + cut[k])) or 0.0,
                label_distance=distance,
                homophily=_share(int(alike[k]), int(judged[k])),
            )
        )
    return tuple(facts)


def _memberships(graph: Data) -> list[tuple[str, NDArray[np.int64], Sequence[str]]]:
    """What else than a client may have a threshold of its own."""
    found = [("class", graph.y.numpy(), graph.label_names)]
    if "group" in graph:
        found.append(("group", graph.group.numpy(), graph.group_names))
    return found


def _held(
    member: NDArray[np.int64],
    names: Sequence[str],
    partition: Partition,
    roles: NDArray[np.integer],
) -> dict[str, tuple[int, int]]:
    """N_g and K_g by name: calibration nodes, and the clients that have them."""
    calib = roles == Role.CALIB
    pair = member[calib] * partition.clients + partition.client[calib]
    table = np.bincount(pair, minlength=len(names) * partition.clients)
    table = table.reshape(len(names), partition.clients)
    sizes = zip(table.sum(axis=1).tolist(), (table > 0).sum(axis=1).tolist(), strict=True)
    return dict(zip(names, sizes, strict=True))


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


def _features(x: sparse.csr_array | NDArray[np.float32]) -> Features:
    rows, columns = x.shape
    if isinstance(x, np.ndarray):
        # Column by column: a mask of the whole matrix would double the memory that it takes.
        other = np.array([np.any((column != 0) & (column != 1)) for column in x.T])
        filled = int(np.count_nonzero(x))
    else:
        other = np.bincount(x.indices[(x.data != 0) & (x.data != 1)], minlength=columns)
        filled = int(x.count_nonzero())
    binary = int((other == 0).sum())
    share = filled / max(rows * columns, 1)
    return Features(columns, binary, columns - binary, not isinstance(x, np.ndarray), share)


def _alike(
    y: NDArray[np.int64], source: NDArray[np.int64], target: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which edges join two known labels, and which of them two equal ones."""
    first, second = y[source], y[target]
    known = (first >= 0) & (second >= 0)
    return known, known & (first == second)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


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
        said.append(f"No node has {_words('label', never)}: it can stand in a set, never be true.")
    return said


def _words(thing: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    return f"the {thing}{'s' if len(names) > 1 else ''} {shown}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _listed(names: Sequence[str]) -> str:
    return f"client {names[0]} has" if len(names) == 1 else f"clients {_some(names)} have"


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
