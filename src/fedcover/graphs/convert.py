"""Graphs that are scipy matrices; for those of networkx see :mod:`fedcover.graphs.attributes`.

A PyG ``Data`` needs no conversion; :func:`fedcover.graphs.check_graph` takes it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError, shown
from fedcover.graphs.assemble import assemble
from fedcover.graphs.check import check_graph
from fedcover.graphs.labels import NO_LABEL, encode, is_none, repeated, too_many
from fedcover.graphs.spelling import as_integers
from fedcover.graphs.splits import NO_ROLE, ROLE_WORDS, Role, check_roles

Strings = Sequence[str] | NDArray[Any]


def from_scipy(
    adjacency: Any,
    x: Any,
    y: Any,
    *,
    client: Any = None,
    split: Any = None,
    label_names: Sequence[str] | None = None,
    node_ids: Strings | None = None,
    name: str = "graph",
) -> Data:
    """A graph from a square matrix (an entry that is not 0 is an edge), features and labels.

    ``x`` (n, features) is a numpy array or scipy matrix of finite numbers, taken as it is. ``y``
    (n,) holds whole numbers, numbered as they are if ``label_names`` names them and -1 for none, or
    text ("" for none); None and NaN always stand for none. ``client`` (n,) are names or numbers,
    ``split`` (n,) the words train, valid, calib, test, or the numbers of
    :class:`~fedcover.graphs.Role`.
    """
    matrix = _matrix("adjacency", adjacency)
    n = matrix.shape[0]
    if matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"adjacency has the shape {matrix.shape}; it must be square.")
    if np.isnan(matrix.data if sparse.issparse(matrix) else matrix).any():
        raise DataError("adjacency has NaN; 0 is no edge, any other number is one.")
    features = _matrix("x", x)
    labels, names = _labels(_vector(y), label_names)
    for what, values in (("x", features.shape), ("y", labels.shape)):
        if values[0] != n:
            raise DataError(f"{what} has {values[0]} rows; the graph has {n} nodes.")
    owner, owners = (None, None) if client is None else encode(_texts("client", client, n))
    return check_graph(
        assemble(
            _finite(features),
            np.stack(matrix.nonzero()),
            labels,
            name=name,
            label_names=names,
            node_ids=np.arange(n) if node_ids is None else _texts("node_ids", node_ids, n),
            client=owner,
            client_names=owners,
            split=None if split is None else _roles(split, n),
        )
    )


def _matrix(what: str, value: Any) -> sparse.csr_array | NDArray[Any]:
    try:
        matrix = sparse.csr_array(value) if sparse.issparse(value) else np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is not a matrix of numbers.") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "iufb":
        raise DataError(f"{what} must be a matrix (2 dimensions) of real numbers.")
    return matrix


def _finite(x: sparse.csr_array | NDArray[Any]) -> sparse.csr_array | NDArray[np.float32]:
    with np.errstate(over="ignore"):
        result = x.astype(np.float32)
    values = result if isinstance(result, np.ndarray) else result.data
    if not np.isfinite(values).all():
        raise DataError("x has a value that is not a finite float32 number.")
    return result


def _vector(values: Any) -> NDArray[Any]:
    """An array whose text is text: numpy would spell a None or NaN between words as a word."""
    array = np.asarray(values)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        return np.asarray(values, dtype=object)
    return array


def _whole(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return float(value).is_integer()
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _labels(
    y: NDArray[Any], names: Sequence[str] | None
) -> tuple[NDArray[np.int64], Sequence[str]]:
    """Numbers and names; without names, integers count as they are spelt."""
    if y.ndim != 1:
        raise DataError(f"y has the shape {y.shape}; it must be (nodes,).")
    if y.dtype.kind in "fO":
        values = [None if is_none(value) else value for value in y.tolist()]
        if all(value is None or (_whole(value) and abs(value) < 2**63) for value in values):
            y = np.array([NO_LABEL if v is None else int(v) for v in values], dtype=np.int64)
    if y.dtype.kind in "iu":
        if names is not None:
            return y.astype(np.int64), names
        if (y < NO_LABEL).any():
            raise DataError(
                f"y has {y[y < NO_LABEL][0]}; labels are numbers from 0 on, and -1 is none."
            )
        known = y >= 0
        codes, found = encode(y[known])
    else:
        spelt = pl.Series(
            [None if is_none(value) else str(value).strip() for value in y.tolist()],
            dtype=pl.String,
        )
        known = (spelt.is_not_null() & (spelt != "").fill_null(False)).to_numpy()
        wanted = spelt.filter(pl.Series(known))
        names = None if names is None else [str(name).strip() for name in names]
        if names is not None and not wanted.is_in(list(names)).all():
            other = wanted.filter(~wanted.is_in(list(names)))[0]
            raise DataError(f"y has {shown(other)}, which is not among label_names.")
        if names is not None and (twice := repeated(names)) is not None:
            raise DataError(f"label_names has {shown(twice)} twice; every label needs its own.")
        codes, found = encode(wanted, names)
    if names is None and too_many(len(found), int(known.sum())):
        raise DataError(
            f"y has {len(found):,} different values for {int(known.sum()):,} nodes, too many for "
            "classes."
        )
    result = np.full(len(y), NO_LABEL, dtype=np.int64)
    result[known] = codes
    return result, found


def _texts(what: str, values: Any, n: int) -> list[str]:
    found = np.atleast_1d(_vector(values)).tolist()
    if len(found) != n:
        raise DataError(f"{what} has {len(found)} entries; the graph has {n} nodes.")
    for position, value in enumerate(found):
        if is_none(value) or str(value).strip() == "":
            raise DataError(f"{what} has no value at position {position}; every node needs one.")
    return as_integers(pl.Series([str(value).strip() for value in found])).to_list()


def _roles(split: Any, n: int) -> NDArray[np.int8]:
    """Roles by name or number."""
    values = np.asarray(split.numpy() if isinstance(split, torch.Tensor) else split)
    if values.shape != (n,):
        raise DataError(f"split has the shape {values.shape}; it must be ({n},).")
    if values.dtype.kind in "iu":
        check_roles(values)
        return values.astype(np.int8)
    numbers = ROLE_WORDS | {"": NO_ROLE, "none": NO_ROLE}
    words = ["" if is_none(value) else str(value).strip() for value in _vector(split).tolist()]
    for word in words:
        if word.lower() not in numbers:
            known = ", ".join(role.name.lower() for role in Role)
            raise DataError(f"split has {shown(word)}; it must be one of {known}.")
    return np.array([numbers[word.lower()] for word in words], dtype=np.int8)
