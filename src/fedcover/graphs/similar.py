"""Which nodes of one client have the most similar features, for the score SNAPS.

Similarity is the cosine of two nodes' features. A client looks among its own nodes only.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedcover.errors import DataError, UsageError
from fedcover.graphs.partition import ClientGraph

Features: TypeAlias = Any  # a scipy CSR array or a numpy array, nodes × features
Alike = tuple[NDArray[np.int64], NDArray[np.float64]]  # positions of similar nodes, and cosines

NEAREST = 20
"""How many similar nodes SNAPS's authors take (their program's default)."""

BLOCK = 256
"""Rows of the n × n similarities that are in memory at once; more are slower, not faster."""


def similar_nodes(x: Features, k: int = NEAREST, block: int = BLOCK) -> NDArray[np.int64]:
    """Positions (n, k) of each node's k most similar other nodes, the most similar first.

    Equal cosines go by position. Only a positive cosine counts as similar: nodes that share no
    feature are not, nor is a node without features similar to anyone. Where fewer than k are left,
    the row ends with −1. Binary features, scaled row by row or not, are compared without rounding;
    others to the precision of float32 (dense) or float64 (sparse).
    """
    rows = _comparable(x)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise UsageError(f"k is {k!r}, but must be a whole number of 1 or more.")
    n = rows.shape[0]
    norm2 = _squared_norms(rows)
    nodes = np.full((n, k), -1, dtype=np.int64)
    dots = _products(rows)
    for start in range(0, n, block):
        stop = min(start + block, n)
        # Within a row the cosine is ordered as dot² / norm² of the other node; both are integers
        # where features are binary, so that equal cosines are equal numbers.
        likeness = dots(start, stop)
        likeness[likeness <= 0.0] = 0.0
        likeness *= likeness
        likeness /= norm2
        likeness[np.arange(stop - start), np.arange(start, stop)] = 0.0
        _top(likeness, nodes[start:stop])
    return nodes


def cosines(x: Features, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cosine (n, k) between each node and those of ``similar_nodes``; 0 where there is none.

    Never below 0, so that they can be weights (``weight`` of :func:`~fedcover.conformal.snaps`).
    """
    rows = _comparable(x)
    n, k = nodes.shape
    norm = np.sqrt(_squared_norms(rows))
    result = np.zeros((n, k))
    block = max(1, 2**22 // max(k * rows.shape[1], 1))
    for start in range(0, n, block):
        stop = min(start + block, n)
        others = nodes[start:stop].ravel()
        theirs = _dense(rows[others]).reshape(stop - start, k, -1)
        dot = np.einsum("bd,bkd->bk", _dense(rows[start:stop]), theirs, dtype=np.float64)
        result[start:stop] = dot / (norm[start:stop, None] * norm[others].reshape(dot.shape))
    return np.where(nodes >= 0, np.maximum(result, 0.0), 0.0)


def similar_to(x: Features) -> Alike:
    """The similar nodes of every node, and their cosines."""
    nodes = similar_nodes(x)
    return nodes, cosines(x, nodes)


def similar_at(x: Features, parts: Sequence[ClientGraph]) -> list[Alike]:
    """For every client the similar nodes among its own."""
    found = []
    for part in parts:
        rows = x[part.nodes]
        nodes = similar_nodes(rows)
        found.append((nodes, cosines(rows, nodes)))
    return found


def _comparable(x: Features) -> Features:
    """The features with each row's largest value made ±1, which changes no cosine.

    Features that were binary before some row-wise scaling are then 0 and 1 again, exactly.
    """
    if not sparse.issparse(x):
        dense = np.asarray(x)
        if dense.ndim != 2:
            raise DataError(f"x has shape {dense.shape}; it must be (nodes, features).")
        _check_finite(dense)
        largest = np.abs(dense).max(axis=1, initial=0.0)
        return (dense / np.where(largest > 0.0, largest, 1.0)[:, None]).astype(np.float32)
    scaled = sparse.csr_array(x, dtype=np.float64, copy=True)
    _check_finite(scaled.data)
    owner = np.repeat(np.arange(scaled.shape[0]), np.diff(scaled.indptr))
    largest = np.zeros(scaled.shape[0])
    np.maximum.at(largest, owner, np.abs(scaled.data))
    scaled.data /= np.where(largest > 0.0, largest, 1.0)[owner]
    return scaled


def _check_finite(values: NDArray[np.floating]) -> None:
    if not np.isfinite(values).all():
        raise DataError("x holds a value that is not finite; cosines need numbers.")


def _squared_norms(rows: Features) -> NDArray[np.float64]:
    """Squared norm of each row; 1 for one without features, whose products are all 0 anyway."""
    if isinstance(rows, np.ndarray):
        norm2 = np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
    else:
        norm2 = np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()
    return np.where(norm2 > 0.0, norm2, 1.0)


def _products(rows: Features) -> Callable[[int, int], NDArray[np.float64]]:
    """The function that gives the products of rows start … stop − 1 with all rows, dense."""
    if isinstance(rows, np.ndarray):
        dense = rows
        return lambda start, stop: (dense[start:stop] @ dense.T).astype(np.float64)
    columns = rows.T.tocsr()  # once, not for every block
    return lambda start, stop: (rows[start:stop] @ columns).toarray()


def _dense(rows: Features) -> NDArray[np.floating]:
    return rows if isinstance(rows, np.ndarray) else rows.toarray()


def _top(likeness: NDArray[np.float64], nodes: NDArray[np.int64]) -> None:
    """Write the positions of each row's largest positive values, ties by position."""
    k = min(nodes.shape[1], likeness.shape[1])
    last = np.partition(likeness, -k, axis=1)[:, -k, None]
    keep = (likeness >= last) & (likeness > 0.0)
    crowded = np.flatnonzero(keep.sum(axis=1) > k)  # several are level at the last place
    level = likeness[crowded] == last[crowded]
    room = k - (keep[crowded] & ~level).sum(axis=1, keepdims=True)
    keep[crowded] &= ~level | (np.cumsum(level, axis=1, dtype=np.int32) <= room)
    row, column = np.nonzero(keep)  # at most k in a row
    order = np.lexsort((column, -likeness[row, column], row))
    row, column = row[order], column[order]
    counts = keep.sum(axis=1)
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    nodes[row, place] = column
