"""Graphs of other libraries: scipy's matrices, and networkx with attributes of nodes as columns.

A PyG ``Data`` needs no conversion; :func:`fedcover.graphs.check_graph` takes it as it is.
"""

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
from fedcover.graphs.labels import NO_LABEL, encode, is_integer, is_none, repeated, too_many
from fedcover.graphs.readers import ENDS, NODE_COLUMNS, graph_of, role_numbers
from fedcover.graphs.schema import Schema
from fedcover.graphs.spelling import as_integers, stripped
from fedcover.graphs.splits import NO_ROLE, ROLE_NAMES, check_roles
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
    labels, names = _labels(_array(y), label_names)
    for what, values in (("x", features), ("y", labels)):
        if values.shape[0] != n:
            raise DataError(f"{what} has {values.shape[0]} rows; the graph has {n} nodes.")
    owner, owners = (None, None) if client is None else encode(_names("client", client, n))
    return check_graph(
        assemble(
            features,
            np.stack(matrix.nonzero()),
            labels,
            name=name,
            label_names=names,
            node_ids=np.arange(n) if node_ids is None else _names("node_ids", node_ids, n),
            client=owner,
            client_names=owners,
            split=None if split is None else _roles(split, n),
        )
    )


def from_networkx(
    graph: "networkx.Graph",
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

    spelt = dict(zip(_MARKS, (label, client, split), strict=True))
    nodes = FrameTable(lambda row: f"node {shown(ids[row])}", spelt)

    def column_of(key: Any, meaning: str = "") -> pl.Series:
        values = [found.get(key) for found in attributes]
        for row, value in enumerate(values):
            if hasattr(value, "__len__") and not isinstance(value, str):
                what = f"is a {type(value).__name__}; it must be a number, true or false, or text"
                nodes.refuse(what, row=row, column=key)
            values[row] = _plain(value)
        if all(value is None for value in values) and (schema is None or meaning in _MARKS[1:]):
            which = f", which is its {meaning}" if meaning else ""
            raise DataError(f"No node of the graph has the attribute {shown(key)}{which}.")
        column = _column(values)
        for row, value in enumerate(values):
            if column.dtype == pl.String and isinstance(value, int | float) and not meaning:
                what = f"is the number {value}, but other nodes have text"
                nodes.refuse(f"{what}; it must be the same kind for all", row=row, column=key)
        return column

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
    nodes.frame = pl.DataFrame(columns)
    edges = FrameTable(lambda row: f"edge {row + 1}", {})
    pairs = [(str(one), str(other)) for one, other in graph.edges()]
    edges.frame = pl.DataFrame(pairs, dict.fromkeys(ENDS, pl.String), orient="row")
    name = name or str(graph.name or "graph")
    return graph_of(nodes, edges, name=name, schema=schema, missing=missing)


class FrameTable(Table):
    """Columns that are in memory already; an error names what ``place`` calls a row."""

    name, kind, is_csv = "The networkx graph", "attribute", False

    def __init__(self, place: Callable[[int], str], spelt: Mapping[str, str | None]) -> None:
        self.frame, self._place = pl.DataFrame(), place
        self.spelt = {column: name for column, name in spelt.items() if name is not None}

    def place(self, row: int) -> str:
        """What errors call a row."""
        return self._place(row)


def _plain(value: Any) -> Any:
    """An attribute as a value of Python, None where it says that there is none."""
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


def _matrix(what: str, value: Any) -> Any:
    try:
        matrix = sparse.csr_array(value) if sparse.issparse(value) else np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is not a matrix of numbers.") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "iufb":
        raise DataError(f"{what} must be a matrix (2 dimensions) of real numbers.")
    return matrix


def _array(values: Any) -> NDArray[Any]:
    """An array whose text is text: numpy would spell a None or NaN between words as a word."""
    array = np.asarray(values)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        return np.asarray(values, dtype=object)
    return array


def _text(values: NDArray[Any]) -> pl.Series:
    """Values as words without blanks around them, null where there is none."""
    words = [None if is_none(value) else str(value) for value in values.tolist()]
    return stripped(pl.Series(words, dtype=pl.String))


def _is_whole(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return float(value).is_integer()
    return is_integer(value)


def _labels(y: NDArray[Any], names: Strings | None) -> tuple[NDArray[np.int64], Any]:
    """Numbers and names; without names, integers count as they are spelt."""
    if y.ndim != 1:
        raise DataError(f"y has the shape {y.shape}; it must be (nodes,).")
    if y.dtype.kind in "fO":
        values = [None if is_none(value) else value for value in y.tolist()]
        if all(value is None or (_is_whole(value) and abs(value) < 2**63) for value in values):
            y = np.array([NO_LABEL if v is None else int(v) for v in values], dtype=np.int64)
    if y.dtype.kind not in "iu":
        labels = _text(y)
    elif names is not None:
        return y.astype(np.int64), names
    elif (y < NO_LABEL).any():
        first = y[y < NO_LABEL][0]
        raise DataError(f"y has {first}; labels are numbers from 0 on, and -1 is none.")
    else:
        labels = pl.Series(y.astype(str)).replace([str(NO_LABEL)], [None])
    known = labels.drop_nulls()
    if names is not None:
        names = [str(name).strip() for name in names]
        other = known.filter(~known.is_in(names))
        if len(other):
            raise DataError(f"y has {shown(other[0])}, which is not among label_names.")
        if (twice := repeated(names)) is not None:
            raise DataError(f"label_names has {shown(twice)} twice; every label needs its own.")
    elif what := too_many(known.n_unique(), len(known)):
        raise DataError(f"y {what}.")
    return encode(labels, names)


def _names(what: str, values: Any, n: int) -> list[str]:
    text = _text(np.atleast_1d(_array(values)))
    if len(text) != n:
        raise DataError(f"{what} has {len(text)} entries; the graph has {n} nodes.")
    if text.has_nulls():
        position = text.is_null().arg_max()
        raise DataError(f"{what} has no value at position {position}; every node needs one.")
    return as_integers(text).to_list()


def _roles(split: Any, n: int) -> NDArray[np.int8]:
    """Roles by name or number."""
    values = np.asarray(split.numpy() if isinstance(split, torch.Tensor) else split)
    if values.shape != (n,):
        raise DataError(f"split has the shape {values.shape}; it must be ({n},).")
    if values.dtype.kind in "iu":
        check_roles(values)
        return values.astype(np.int8)
    words = _text(_array(split))
    roles = role_numbers(words)
    roles = roles.set(words.str.to_lowercase() == "none", NO_ROLE)
    for word in words.filter(roles.is_null()).drop_nulls():
        raise DataError(f"split has {shown(word)}; it must be one of {', '.join(ROLE_NAMES)}.")
    return roles.fill_null(NO_ROLE).to_numpy(writable=True)
