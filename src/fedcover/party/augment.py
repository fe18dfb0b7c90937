r"""Generated nodes become neighbours of a client's own nodes (paper, section 5.3).

Which ones: the score of a pair is the VGAE's inner product :math:`z_u^\top z_v`; the link
probability is its sigmoid, so both order the pairs alike. Then they are appended to its graph.
"""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedcover.graphs.labels import NO_LABEL
from fedcover.plans import count_links
from fedcover.training.plan import Features, Index, PartyGraph, Rows

BLOCK = 2_000_000  # pairs scored at once


def augment(
    client: PartyGraph,
    features: Features,
    links: Index,
    weight: float | NDArray[np.float64] = 1.0,
) -> PartyGraph:
    """The client's graph with generated nodes after its own, and an edge both ways for each link.

    ``links`` (2, m) holds positions in ``features`` above, local nodes below; such an edge counts
    ``weight``, one number or one a link; the client's own count 1. Generated nodes without a link
    are left out. The others have no label and belong to no split, so they enter no loss, no
    calibration and no metric. If they have more columns than the client's, its own are 0 there.
    """
    linked, generated = np.unique(links[0], return_inverse=True)
    new = np.stack([generated + client.nodes, links[1]])
    both_ways = np.concatenate([new, new[::-1]], axis=1)
    each = np.broadcast_to(np.float64(weight), links.shape[1:])
    return replace(
        client,
        x=append_rows(widened(client.x, features.shape[1]), features[linked]),
        edge_index=np.concatenate([client.edge_index, both_ways], axis=1),
        y=np.concatenate([client.y, np.full(len(linked), NO_LABEL, dtype=client.y.dtype)]),
        generated=client.generated + len(linked),
        weight=np.concatenate([client.edge_weight, each, each]),
    )


def widened(x: Features, columns: int) -> Features:
    """The features with columns of zeros behind them, up to so many."""
    more = columns - x.shape[1]
    if more <= 0:
        return x
    if sp.issparse(x):
        return sp.csr_array((x.data, x.indices, x.indptr), shape=(x.shape[0], columns))
    return np.pad(x, ((0, 0), (0, more)))


def append_rows(x: Features, more: Features) -> Features:
    """Both stacked, sparse if ``x`` is."""
    if sp.issparse(x):
        return sp.vstack([x, sp.csr_array(more, dtype=x.dtype)], format="csr")
    dense = more.toarray() if sp.issparse(more) else more
    return np.concatenate([x, dense.astype(x.dtype)])


def trimmed(rows: NDArray[np.floating], count: int) -> sp.csr_array:
    """Only the ``count`` entries of largest magnitude of each row, with their values.

    A generated vector has no zeros, a real one nearly nothing else: trimmed to as many entries as
    real nodes have (:func:`mean_entries`), generated nodes keep a sparse graph sparse.
    """
    if count >= rows.shape[1]:
        return sp.csr_array(rows)
    columns = np.sort(np.argpartition(-np.abs(rows), count - 1, axis=1)[:, :count], axis=1)
    values = np.take_along_axis(rows, columns, axis=1)
    starts = np.arange(len(rows) + 1) * count
    matrix = sp.csr_array((values.ravel(), columns.ravel(), starts), shape=rows.shape)
    matrix.eliminate_zeros()
    return matrix


def mean_entries(x: sp.csr_array) -> int:
    """How many entries a row has on average, 1 at least."""
    return max(round(int(x.nnz) / int(x.shape[0])), 1)


def choose_links(local: Rows, generated: Rows, share: float, rule: str) -> Index:
    """The pairs (2, m) that become edges: generated nodes above, local nodes below.

    ``global``: of all pairs at the client the ``share`` with the largest inner products, as the
    paper writes. ``node``: of each local node's own pairs the largest ``share``, at least one. A
    share of 0 means no links by either rule.
    """
    return RULES[rule](local, generated, count_links(rule, len(local), len(generated), share))


def nearest(local: Rows, generated: Rows, count: int, block: int = BLOCK) -> Index:
    """Each local node's ``count`` generated nodes with the largest inner products.

    Of equal ones the first counts.
    """
    count, rows = min(count, len(generated)), max(block // max(len(generated), 1), 1)
    chosen = [
        np.argsort(-(local[start : start + rows] @ generated.T), axis=1, kind="stable")[:, :count]
        for start in range(0, len(local), rows)
    ]
    nodes = np.repeat(np.arange(len(local)), count)
    return np.stack([np.concatenate(chosen).ravel(), nodes])


def top_pairs(local: Rows, generated: Rows, count: int, block: int = BLOCK) -> Index:
    """The ``count`` pairs with the largest inner products, in order (all if there are fewer).

    Of equal scores the pair with the smaller local node comes first, then the smaller generated
    node, so that the choice does not depend on the block. Memory is bounded by the block and twice
    ``count``: the pairs of a block that cannot be among the first are dropped at once.
    """
    width = len(generated)
    count = min(count, len(local) * width)
    best, codes = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    if count == 0:
        return np.empty((2, 0), dtype=np.int64)
    rows = max(block // width, 1)
    for start in range(0, len(local), rows):
        scores = (local[start : start + rows] @ generated.T).ravel()
        at_least = best[-1] if len(best) == count else -np.inf
        kept = np.flatnonzero(scores > at_least) if at_least > -np.inf else np.arange(len(scores))
        best = np.concatenate([best, scores[kept]])
        codes = np.concatenate([codes, kept + start * width])
        if (beyond := len(best) - count) > 0:
            some = best >= np.partition(best, beyond)[beyond]
            best, codes = best[some], codes[some]
        order = np.lexsort((codes, -best))[:count]
        best, codes = best[order], codes[order]
    nodes, generated_nodes = np.divmod(codes, width)
    return np.stack([generated_nodes, nodes])


RULES = {"node": nearest, "global": top_pairs}
