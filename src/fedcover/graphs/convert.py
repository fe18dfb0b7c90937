"""Graphs of other libraries: scipy's matrices, and networkx with attributes of nodes as columns.

A PyG ``Data`` needs no conversion; :func:`fedcover.graphs.check_graph` takes it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError, shown
from fedcover.graphs.assemble import assemble
from fedcover.graphs.check import check_graph
from fedcover.graphs.labels import NO_LABEL, encode, is_none, repeated, too_many
from fedcover.graphs.readers import ENDS, NODE_COLUMNS, graph_of
from fedcover.graphs.schema import Schema
from fedcover.graphs.spelling import as_integers, stripped
from fedcover.graphs.splits import NO_ROLE, ROLE_WORDS, Role, check_roles
from fedcover.graphs.tables import Table

if TYPE_CHECKING:
    import networkx

Strings = Sequence[str] | NDArray[Any]
_MARKS = ("label", "client", "split")  # attributes of nodes that are no features


def from_scipy(
    adjacency: Any,
    x: Any,
    y: Any,
    *,
    client: Any = None,
    split: Any = None,
    label_names: Strings | None = None,
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
    matrix, features = _matrix("adjacency", adjacency), _matrix("x", x)
    n = matrix.shape[0]
    if matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"adjacency has the shape {matrix.shape}; it must be square.")
    if np.isnan(matrix.data if sparse.issparse(matrix) else matrix).any():
        raise DataError("adjacency has NaN; 0 is no edge, any other number is one.")
    with np.errstate(over="ignore"):
        features = features.astype(np.float32)
    if not np.isfinite(features.data if sparse.issparse(features) else features).all():
        raise DataError("x has a value that is not a finite float32 number.")
    labels, names = _labels(_vector(y), label_names)
    for what, values in (("x", features), ("y", labels)):
        if values.shape[0] != n:
            raise DataError(f"{what} has {values.shape[0]} rows; the graph has {n} nodes.")
    owner, owners = (None, None) if client is None else encode(_texts("client", client, n))
    return check_graph(
        assemble(
            features,
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


def from_networkx(
    graph: networkx.Graph,
    *,
    label: str = "label",
    features: Sequence[str] | None = None,
    client: str | None = None,
    split: str | None = None,
    missing: str = "refuse",
    schema: Schema | None = None,
    name: str | None = None,
) -> Data:
    """A networkx graph whose nodes carry attributes, read as a folder of tables would be.

    ``label``, ``client`` and ``split`` name attributes of nodes. ``features`` names those that
    become features (None: all others, in the order they are first met). Numbers and booleans stay
    numbers, text becomes categories; an attribute that a node lacks is a missing value, and a node
    without the label is kept without one. Directions, parallel edges and self-loops do not matter.
    """
    import networkx

    if not isinstance(graph, networkx.Graph):
        raise UsageError(f"graph is a {type(graph).__name__}; it must be a networkx graph.")
    ids, attributes = [str(node) for node in graph], [found for _, found in graph.nodes(data=True)]

    def column_of(key: Any, meaning: str = "") -> pl.Series:
        values = [_value(*one, key) for one in zip(ids, attributes, strict=True)]
        if all(value is None for value in values) and (schema is None or meaning in _MARKS[1:]):
            which = f", which is its {meaning}" if meaning else ""
            raise DataError(f"No node of the graph has the attribute {shown(key)}{which}.")
        column = _column(values)
        if column.dtype == pl.String and not meaning:
            _refuse_numbers(ids, key, values)
        return column

    spelt = dict(zip(_MARKS, (label, client, split), strict=True))
    columns = {"id": pl.Series(ids, dtype=pl.String)}
    columns |= {mark: column_of(key, mark) for mark, key in spelt.items() if key is not None}
    if features is None:
        met = dict.fromkeys(key for found in attributes for key in found)
        features = [key for key in met if key not in spelt.values()]
    elif isinstance(features, str):
        raise UsageError(f"features is {features!r}; it must be a list of attributes.")
    for key in features:
        attribute = str(key)
        if attribute in NODE_COLUMNS:
            raise UsageError(
                f"features has {shown(attribute)}, but {', '.join(NODE_COLUMNS)} are no features; "
                "name it as client or split if it is that, or rename the attribute."
            )
        if attribute in columns:
            raise UsageError(
                f"features has {shown(attribute)} twice; name each attribute differently."
            )
        columns[attribute] = column_of(key)
    pairs = [(str(one), str(other)) for one, other in graph.edges()]
    edges = pl.DataFrame(pairs, dict.fromkeys(ENDS, pl.String), orient="row")
    return graph_of(
        FrameTable(pl.DataFrame(columns), lambda row: f"node {shown(ids[row])}", spelt),
        FrameTable(edges, lambda row: f"edge {row + 1}", {}),
        name=name or str(graph.name or "graph"),
        schema=schema,
        missing=missing,
    )


class FrameTable(Table):
    """Columns that are in memory already; an error names what ``place`` calls a row."""

    name, kind = "The networkx graph", "attribute"

    def __init__(
        self, frame: pl.DataFrame, place: Callable[[int], str], spelt: Mapping[str, str | None]
    ) -> None:
        self.frame, self.is_csv, self._place = frame, False, place
        self.spelt = {column: name for column, name in spelt.items() if name is not None}

    def place(self, row: int) -> str:
        """What errors call a row."""
        return self._place(row)


def _value(node: str, attributes: Mapping[Any, Any], key: Any) -> Any:
    """A node's attribute as a plain single value, None where it says that there is none."""
    value = attributes.get(key)
    if hasattr(value, "__len__") and not isinstance(value, str):
        raise DataError(
            f"{FrameTable.name}, node {shown(node)}, attribute {shown(key)}: is a "
            f"{type(value).__name__}; it must be a number, true or false, or text."
        )
    if is_none(value):
        return None
    value = value.item() if isinstance(value, np.generic) else value
    return float(value) if isinstance(value, Decimal | Fraction) else value


def _column(values: Sequence[Any]) -> pl.Series:
    """Python values as a column: numbers, booleans or text, with None where there is none."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return pl.Series(values, dtype=pl.Boolean)
    if kinds <= {int} and all(value is None or abs(value) < 2**63 for value in values):
        return pl.Series(values, dtype=pl.Int64)
    if kinds <= {int, float, bool}:
        return pl.Series([None if v is None else float(v) for v in values], dtype=pl.Float64)
    return pl.Series([None if v is None else str(v) for v in values], dtype=pl.String)


def _refuse_numbers(ids: Sequence[str], key: str, values: Sequence[Any]) -> None:
    """Refuse a number in a feature of words, where one is the other's mistake."""
    for node, value in zip(ids, values, strict=True):
        if isinstance(value, int | float):
            raise DataError(
                f"{FrameTable.name}, node {shown(node)}, attribute {shown(key)}: is the number "
                f"{value}, but other nodes have text; it must be the same kind for all."
            )


def _matrix(what: str, value: Any) -> Any:
    try:
        matrix = sparse.csr_array(value) if sparse.issparse(value) else np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is not a matrix of numbers.") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "iufb":
        raise DataError(f"{what} must be a matrix (2 dimensions) of real numbers.")
    return matrix


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


def _labels(y: NDArray[Any], names: Strings | None) -> tuple[NDArray[np.int64], Any]:
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
        labels = pl.Series(y.astype(str)).replace([str(NO_LABEL)], [None])
    else:
        spelt = [None if is_none(value) else str(value) for value in y.tolist()]
        labels = stripped(pl.Series(spelt, dtype=pl.String))
    if names is not None:
        names = [str(name).strip() for name in names]
        other = labels.drop_nulls().filter(~labels.drop_nulls().is_in(names))
        if len(other):
            raise DataError(f"y has {shown(other[0])}, which is not among label_names.")
        if (twice := repeated(names)) is not None:
            raise DataError(f"label_names has {shown(twice)} twice; every label needs its own.")
    codes, found = encode(labels, names)
    if names is None and (what := too_many(len(found), len(labels.drop_nulls()))):
        raise DataError(f"y {what}.")
    return codes, found


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
