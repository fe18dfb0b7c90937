"""Which nodes of one client have the most similar features, for the score SNAPS.

Similarity is the cosine of two nodes' features. A client looks among its own nodes only.
scikit-learn's neighbours come close, but leave the order of equal cosines to chance.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedcover.errors import DataError
from fedcover.graphs.labels import check_count

Features: TypeAlias = Any  # a scipy CSR array or a numpy array, nodes × features
Alike = tuple[NDArray[np.int64], NDArray[np.float64]]  # positions of similar nodes, and cosines

NEAREST = 20  # similar nodes that SNAPS's authors take (their program's default)
BLOCK = 256  # rows of the n × n similarities in memory at once; more are slower, not faster


def similar_nodes(x: Features, k: int = NEAREST, block: int = BLOCK) -> NDArray[np.int64]:
    """Positions (n, k) of each node's k most similar other nodes, the most similar first.

    Equal cosines go by position. Only a positive cosine counts as similar: nodes that share no
    feature are not, nor is a node without features similar to anyone. Where fewer than k are left,
    the row ends with −1. Binary features, scaled row by row or not, are compared without rounding;
    others to the precision of float32 (dense) or float64 (sparse).
    """
    check_count("k", k)
    rows = _comparable(x)
    n = rows.shape[0]
    norm2 = _products(rows, rows)
    norm2[norm2 == 0.0] = 1.0
    columns = rows.T.tocsr() if sparse.issparse(rows) else rows.T
    nodes = np.full((n, k), -1, dtype=np.int64)
    for start in range(0, n, block):
        stop = min(start + block, n)
        # Within a row the cosine is ordered as dot² / norm² of the other node; both are integers
        # where features are binary, so that equal cosines are equal numbers.
        dots = rows[start:stop] @ columns
        dots = dots.toarray() if sparse.issparse(dots) else dots
        likeness = np.maximum(dots, 0.0, dtype=np.float64) ** 2 / norm2
        likeness[np.arange(stop - start), np.arange(start, stop)] = 0.0
        last = np.partition(likeness, -min(k, n), axis=1)[:, -min(k, n), None]
        # More than k if some are level, which the position then decides.
        row, column = np.nonzero((likeness >= last) & (likeness > 0.0))
        order = np.lexsort((-likeness[row, column], row))
        place = np.arange(len(row)) - np.searchsorted(row, row)
        kept = place < k
        nodes[start + row[kept], place[kept]] = column[order][kept]
    return nodes


def cosines(x: Features, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cosine (n, k) between each node and those of ``similar_nodes``; 0 where there is none.

    Never below 0: they can be the ``weight`` of :func:`~fedcover.conformal.graph_scores`.
    """
    rows = _comparable(x)
    norm = np.sqrt(_products(rows, rows))
    norm[norm == 0.0] = 1.0
    result = np.zeros(nodes.shape)
    for place, other in enumerate(nodes.T):
        result[:, place] = _products(rows, rows[other]) / (norm * norm[other])
    return np.where(nodes >= 0, np.maximum(result, 0.0), 0.0)


def similar_to(x: Features) -> Alike:
    """The similar nodes of every node, and their cosines."""
    nodes = similar_nodes(x)
    return nodes, cosines(x, nodes)


def _comparable(x: Features) -> Features:
    """The features with each row's largest value made ±1, which changes no cosine.

    Features that were binary before some row-wise scaling are then 0 and 1 again, exactly.
    """
    from sklearn.preprocessing import normalize  # takes a second, which few runs need

    rows = sparse.csr_array(x, dtype=np.float64) if sparse.issparse(x) else np.asarray(x)
    if rows.ndim != 2:
        raise DataError(f"x has shape {rows.shape}; it must be (nodes, features).")
    if not np.isfinite(rows.data if sparse.issparse(rows) else rows).all():
        raise DataError("x holds a value that is not finite; cosines need numbers.")
    if 0 not in rows.shape:  # which scikit-learn refuses
        rows = normalize(rows, norm="max")
    return rows if sparse.issparse(rows) else rows.astype(np.float32)


def _products(rows: Features, others: Features) -> NDArray[np.float64]:
    """The product of each row with that of the other matrix."""
    if isinstance(rows, np.ndarray):
        return np.asarray(np.einsum("nd,nd->n", rows, others, dtype=np.float64))
    return np.asarray(rows.multiply(others).sum(axis=1), dtype=np.float64).ravel()
