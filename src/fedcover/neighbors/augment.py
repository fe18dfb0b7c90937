"""Append generated nodes to a client's graph (paper, section 5.3, step 3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedcover.federation import PartyGraph
from fedcover.graphs.labels import NO_LABEL
from fedcover.training.plan import Features


def augment(
    client: PartyGraph, features: Features, links: NDArray[np.int64], weight: float = 1.0
) -> PartyGraph:
    """The client's graph with generated nodes after its own, and an edge both ways for each link.

    These edges count ``weight``, the client's own 1.

    ``links`` (2, m) holds positions in ``features`` above, local nodes below. Generated nodes
    without a link are left out. The others have no label and belong to no split, so they enter no
    loss, no calibration and no metric.
    """
    linked, generated = np.unique(links[0], return_inverse=True)
    new, local = generated + client.nodes, links[1]
    both_ways = np.stack([np.concatenate([new, local]), np.concatenate([local, new])])
    return replace(
        client,
        x=append_rows(client.x, features[linked]),
        edge_index=np.concatenate([client.edge_index, both_ways], axis=1),
        y=np.concatenate([client.y, np.full(len(linked), NO_LABEL, dtype=client.y.dtype)]),
        generated=client.generated + len(linked),
        generated_weight=weight,
    )


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
    height, width = rows.shape
    if count >= width:
        return sp.csr_array(rows)
    columns = np.argpartition(-np.abs(rows), count - 1, axis=1)[:, :count]
    columns.sort(axis=1)
    values = np.take_along_axis(rows, columns, axis=1)
    starts = np.arange(height + 1) * count
    matrix = sp.csr_array((values.ravel(), columns.ravel(), starts), shape=rows.shape)
    matrix.eliminate_zeros()
    return matrix


def mean_entries(x: sp.csr_array) -> int:
    """How many entries a row has on average, 1 at least."""
    return max(round(int(x.nnz) / int(x.shape[0])), 1)
