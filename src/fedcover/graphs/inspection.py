"""What a graph and each client's part of it hold, and what that means for the guarantee.

Everything is known before any training: the theorem asks only how many calibration nodes and how
many nodes that are asked about each client has (docs/guarantee.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.conformal.targets import NO_TERMS, Terms, exact, level_of
from fedcover.graphs.assemble import components, feature_matrix
from fedcover.graphs.links import LinkFacts, link_facts
from fedcover.graphs.partition import Partition
from fedcover.graphs.splits import Role

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
    own_clients: int  # that its client column names; 0 without one
    links: LinkFacts = field(default_factory=LinkFacts)  # which are not used, and whose keys match


@dataclass(frozen=True)
class ClientFacts:
    """One client's part. ``label_distance`` is the total variation between its label frequencies
    and the whole graph's (0: the same, 1: no label in common)."""

    name: str
    nodes: int
    labelled: int
    unlabelled: int
    labels: dict[str, int]  # nodes by label
    calibration: int | None  # None where the nodes could not be split
    edges: int  # between its own nodes
    cut_edges: int  # to nodes of others, which nobody sees
    cut_share: float  # of all edges that its nodes have
    linked: int | None  # nodes that +neighbours could give a sum; None: nobody knows cut edges
    links: dict[str, int] | None  # edges that both ends know, by the other client; likewise
    label_distance: float | None
    homophily: float | None  # of its own edges


@dataclass(frozen=True)
class Promise:
    """What the rule exact promises at one level, and whether there are enough calibration nodes.

    If they do not hold, the threshold is +∞ and every set holds all labels; ``needed`` is the least
    N that suffices where nodes are asked about in proportion to it: 1/α. A client needs
    ``needed_alone`` nodes, 1/α − 1, for a threshold of its own (docs/guarantee.md).
    """

    alpha: float
    holds: bool
    needed: int
    needed_alone: int
    band: tuple[float, float]  # expected coverage: 1 − α and 1 − α + slack
    too_small: tuple[str, ...]  # clients below needed_alone
    small_classes: tuple[str, ...]  # those without a threshold of their own (Theorem 3)
    small_groups: tuple[str, ...]  # likewise


@dataclass(frozen=True)
class Inspection:
    """A graph, its clients, and the promises; ``n_calibration`` is the theorem's N.

    ``asked`` nodes are those without a label, or if there are none the test nodes.
    """

    graph: GraphFacts
    partition: str
    clients: tuple[ClientFacts, ...]
    n_calibration: int | None = None
    asked: int = 0
    known_edges: int = 0  # cut edges that both ends know
    least: int = 0  # of these at a node that ``linked`` counts
    slack: float | None = None  # 2/N where the nodes asked about are spread as calibration nodes
    promises: tuple[Promise, ...] = ()

    def sentences(self) -> list[str]:
        """What the numbers mean, in plain words, the graph's first."""
        said = _of_graph(self.graph) + self._of_clients()
        if self.n_calibration is None:
            return said
        said.append(
            f"{_many(self.n_calibration, 'calibration node')} at "
            f"{_many(len(self.clients), 'client')}: expected coverage is at least 1 − α and at "
            f"most {self.slack:.4f} above it (that end for scores without ties)."
        )
        return said + [text for promise in self.promises for text in self._of_promise(promise)]

    def _of_clients(self) -> list[str]:
        said = []
        if self.graph.own_clients and self.partition != "given":
            said.append(
                f"The graph names clients of its own, {self.graph.own_clients:,}, which are not "
                "used: --partition given takes them."
            )
        # Both its ends count a cut edge.
        cut, known = sum(client.cut_edges for client in self.clients) // 2, self._linked()
        if cut and known is None:
            said.append(
                f"{_many(cut, 'cut edge')}, {cut / self.graph.edges:.1%} of all: no client sees "
                "them, which can make sets larger, but the promise does not rest on them."
            )
        elif known is not None:
            share = f"{cut / max(self.graph.edges, 1):.1%}"
            said.append(
                f"{_many(cut, 'cut edge')}, {share} of all; both ends know {self.known_edges:,}. "
                f"{_many(known, 'node')} ({known / self.graph.nodes:.1%}) with {self.least} or "
                "more of them can have a sum over their own far ends, +neighbours; nodes with "
                "fewer can share one."
            )
            if not self.known_edges:
                said.append("No link is known at both ends: are ids, keys and names spelt alike?")
        return [*said, *self.graph.links.sentences()]

    def _linked(self) -> int | None:
        """How many nodes have enough far ends; None where clients know none."""
        counts = [client.linked for client in self.clients if client.linked is not None]
        return sum(counts) if counts else None

    def _of_promise(self, promise: Promise) -> list[str]:
        level = f"alpha = {promise.alpha:g}"
        stands = ""
        if promise.holds:
            low, high = promise.band
            whom = "nodes without a label" if self.graph.unlabelled else "test nodes"
            stands = ", while the promise for all clients together stands"
            first = (
                f"enough calibration nodes; expect between {low:.4g} and {min(high, 1):.4f} of the "
                f"{whom} to be covered, on average over them."
            )
            if not self.asked:
                first = "no node is asked about: every labelled node trains or calibrates."
        else:
            first = (
                f"too few calibration nodes, {self.n_calibration:,}; at least {promise.needed:,} "
                "are needed, more where clients with few of them have many of the nodes asked "
                "about. Every set would hold all labels. Take a larger alpha."
            )
        said = [f"{level}: {first}"]
        if promise.too_small:
            those = "client {} has" if len(promise.too_small) == 1 else "clients {} have"
            said.append(
                f"{level}: {those.format(_some(promise.too_small))} fewer than the "
                f"{promise.needed_alone:,} calibration nodes that a threshold of one's own needs "
                f"(1/alpha − 1); nothing can be promised there alone{stands}."
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
    known: NDArray[np.int64] | None = None,
    least: int = 1,
) -> Inspection:
    """Describe a graph that is divided among clients, and what can be promised for it.

    ``roles`` (n,) are those that a run would draw; None where it could not, and then nothing is
    said about promises. Labels below 0 are unknown ones. ``known`` are the cut edges (2, m), both
    ways, that clients know; nodes with ``least`` of them are counted. Linear in nodes and edges.
    """
    owner, K = partition.client, partition.clients
    both = 0 if known is None else known.shape[1] // 2
    if roles is None:
        whole, clients = _facts(graph, partition, known, least)
        return Inspection(whole, partition.method, clients, known_edges=both, least=least)
    calib = roles == Role.CALIB
    counts = np.bincount(owner[calib], minlength=K)
    n = int(counts.sum())
    unlabelled = graph.y.numpy() < 0
    asked = np.bincount(owner[unlabelled if unlabelled.any() else roles == Role.TEST], minlength=K)
    terms = Terms(asked) if asked.any() else NO_TERMS
    # Besides a client, a class or a group may have a threshold of its own.
    held = {}
    for kind, names in (("y", "label_names"), ("group", "group_names")):
        if kind in graph:
            member, shape = graph[kind].numpy()[calib], (len(graph[names]), K)
            held[kind] = graph[names], _crossed(member, owner[calib], shape)
    whole, clients = _facts(graph, partition, known, least, counts)
    return Inspection(
        whole,
        partition.method,
        clients,
        n_calibration=n,
        asked=int(asked.sum()),
        known_edges=both,
        least=least,
        slack=exact(0.5, counts.tolist(), terms).slack,
        promises=tuple(_promise(alpha, counts, partition.names, held, terms) for alpha in alphas),
    )


def _promise(
    alpha: float,
    counts: NDArray[np.int64],
    names: Sequence[str],
    held: Mapping[str, tuple[Sequence[str], NDArray[np.int64]]],
    terms: Terms,
) -> Promise:
    n, alone, low = counts.tolist(), _least(alpha, 1), 1 - alpha
    target = exact(alpha, n, terms)
    small = {
        kind: tuple(
            name
            for name, row in zip(members, table.tolist(), strict=True)
            if not exact(alpha, row).reached(row)
        )
        for kind, (members, table) in held.items()
    }
    return Promise(
        alpha=alpha,
        holds=target.reached(n),
        needed=_least(alpha, len(n)),
        needed_alone=alone,
        band=(low, low + (target.slack or 0.0)) if target.reached(n) else (1.0, 1.0),
        too_small=tuple(compress(names, counts < alone)),
        small_classes=small["y"],
        small_groups=small.get("group", ()),
    )


def _least(alpha: float, clients: int) -> int:
    """The least N whose rank is at most N: 1/α, and one less at a single client."""
    # Below 1e-12 no number of nodes that exist suffices.
    rate = 1 - level_of(alpha)
    return max(1, ceil(1 / rate) - (clients == 1)) if rate else 10**12


def _facts(
    graph: Data,
    partition: Partition,
    known: NDArray[np.int64] | None,
    least: int,
    calibration: NDArray[np.int64] | None = None,
) -> tuple[GraphFacts, tuple[ClientFacts, ...]]:
    """Count the graph and every client's part; ``calibration`` is how many such nodes each has."""
    K, owner, y = partition.clients, partition.client, graph.y.numpy()
    source, target = graph.edge_index.numpy()
    of_edge, kept = owner[source], owner[source] == owner[target]
    both = (y[source] >= 0) & (y[target] >= 0)  # have a label
    same = both & (y[source] == y[target])
    # Every edge is there in both directions, so an inner one is seen twice by its client, and a
    # cut one once by each of its two.
    inner, cut, judged, alike = (
        np.bincount(of_edge[chosen], minlength=K)
        for chosen in (kept, ~kept, kept & both, kept & same)
    )
    linked = links = None
    if known is not None:
        enough = np.bincount(known[0], minlength=len(y)) >= least
        linked = np.bincount(owner[enough], minlength=K)
        links = _crossed(owner[known[0]], owner[known[1]], (K, K))
    nodes, inner = np.bincount(owner, minlength=K), inner // 2
    table = _crossed(owner[y >= 0], y[y >= 0], (K, len(graph.label_names)))
    labelled, by_label = table.sum(axis=1), table.sum(axis=0)
    shares = table / np.maximum(labelled, 1)[:, None]
    distance = np.abs(shares - by_label / max(int(by_label.sum()), 1)).sum(axis=1) / 2
    clients = tuple(
        ClientFacts(
            name=name,
            nodes=int(nodes[k]),
            labelled=int(labelled[k]),
            unlabelled=int(nodes[k] - labelled[k]),
            labels=dict(zip(graph.label_names, table[k].tolist(), strict=True)),
            calibration=None if calibration is None else int(calibration[k]),
            edges=int(inner[k]),
            cut_edges=int(cut[k]),
            cut_share=_share(cut[k], inner[k] + cut[k]) or 0.0,
            linked=None if linked is None else int(linked[k]),
            links=None if links is None else _by_name(partition.names, links[k]),
            label_distance=float(distance[k]) if labelled[k] else None,
            homophily=_share(alike[k], judged[k]),
        )
        for k, name in enumerate(partition.names)
    )
    count, component = components(graph)
    whole = GraphFacts(
        name=str(graph.name),
        nodes=len(y),
        edges=len(source) // 2,
        features=_features(feature_matrix(graph)),
        labels=dict(zip(graph.label_names, by_label.tolist(), strict=True)),
        unlabelled=int((y < 0).sum()),
        isolated=int((np.bincount(source, minlength=len(y)) == 0).sum()),
        components=count,
        largest_component=int(np.bincount(component).max()),
        homophily=_share(same.sum(), both.sum()),
        missing=_missing(graph),
        own_clients=len(graph.client_names) if "client" in graph else 0,
        links=link_facts(graph),
    )
    return whole, clients


def _by_name(names: Sequence[str], counts: NDArray[np.int64]) -> dict[str, int]:
    return {name: count for name, count in zip(names, counts.tolist(), strict=True) if count}


def _missing(graph: Data) -> dict[str, int]:
    """Numbers that are marked as empty, and nodes without any of a column's words."""
    if "columns" not in graph:
        return {}
    counts, at, x = {}, 0, feature_matrix(graph)
    totals, gaps = x.sum(axis=0, dtype=np.float64), np.zeros(x.shape[1], dtype=np.int64)
    if "missing" in graph:
        gaps = np.bincount(graph.missing.numpy()[1], minlength=x.shape[1])
    for name, kind in graph.columns:
        words = isinstance(kind, tuple)
        width = len(kind) if words else 1
        counts[name] = len(graph.y) - int(totals[at : at + width].sum()) if words else int(gaps[at])
        at += width
    return {name: count for name, count in counts.items() if count}


def _features(x: sparse.csr_array | NDArray[np.float32]) -> Features:
    rows, columns = x.shape
    if isinstance(x, np.ndarray):
        # Column by column: a mask of the whole matrix would double the memory that it takes.
        other = np.array([np.any((column != 0) & (column != 1)) for column in x.T])
        filled = np.count_nonzero(x)
    else:
        other = np.bincount(x.indices[(x.data != 0) & (x.data != 1)], minlength=columns)
        filled = x.count_nonzero()
    numeric, share = int((other > 0).sum()), int(filled) / max(rows * columns, 1)
    return Features(columns, columns - numeric, numeric, not isinstance(x, np.ndarray), share)


def _crossed(
    rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> NDArray[np.int64]:
    """How often each pair of numbers occurs."""
    counts = np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1])
    return counts.reshape(shape)


def _share(part: np.integer, whole: np.integer) -> float | None:
    return int(part) / int(whole) if whole else None


def _of_graph(facts: GraphFacts) -> list[str]:
    said = []
    if facts.isolated:
        said.append(
            f"{_many(facts.isolated, 'node')} without an edge: predicted from their own features."
        )
    if facts.unlabelled:
        said.append(
            f"{_many(facts.unlabelled, 'node')} without a label: they get sets and are neighbours "
            "of the others, but are never used to train, calibrate or test."
        )
    if facts.missing:
        said.append(
            f"{_many(sum(facts.missing.values()), 'empty value')} in {_some(list(facts.missing))}: "
            "a number becomes its column's mean over the training nodes, a word no category."
        )
    if never := [name for name, count in facts.labels.items() if count == 0]:
        labels = "the label" if len(never) == 1 else "the labels"
        said.append(f"No node has {labels} {_some(never)}: it can stand in a set, never be true.")
    return said


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
