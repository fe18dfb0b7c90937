"""Graphs of networkx: the attributes of nodes as the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import polars as pl
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError, shown
from fedcover.graphs.labels import is_none
from fedcover.graphs.readers import ENDS, NODE_COLUMNS, graph_of
from fedcover.graphs.schema import Schema
from fedcover.graphs.tables import Table

if TYPE_CHECKING:
    import networkx


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
    try:
        import networkx
    except ImportError as error:
        raise UsageError(
            "from_networkx needs the package networkx: pip install networkx."
        ) from error
    if not isinstance(graph, networkx.Graph):
        raise UsageError(f"graph is a {type(graph).__name__}; it must be a networkx graph.")
    nodes = list(graph.nodes)
    ids = [str(node) for node in nodes]
    attributes = [graph.nodes[node] for node in nodes]
    special = {"label": label, "client": client, "split": split}
    if features is None:
        met = dict.fromkeys(key for found in attributes for key in found)
        features = [key for key in met if key not in special.values()]
    elif isinstance(features, str):
        raise UsageError(f"features is {features!r}; it must be a list of attributes.")
    source = "The networkx graph"
    columns: dict[str, pl.Series] = {"id": pl.Series(ids, dtype=pl.String)}
    for meaning, attribute in special.items():
        if attribute is None:
            continue
        values = _values(source, ids, attributes, attribute)
        if any(value is not None for value in values):
            columns[meaning] = _column(values)
        elif meaning != "label" or schema is None:
            raise DataError(
                f"No node of the graph has the attribute {shown(attribute)}, which is its "
                f"{meaning}."
            )
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
        values = _values(source, ids, attributes, key)
        if schema is None and all(value is None for value in values):
            raise DataError(f"No node of the graph has the attribute {shown(key)}.")
        columns[attribute] = _column(values)
        if columns[attribute].dtype == pl.String:
            _refuse_mixed(source, ids, attribute, values)
    pairs = list(graph.edges())
    edges = {
        end: pl.Series([str(pair[side]) for pair in pairs], dtype=pl.String)
        for side, end in enumerate(ENDS)
    }
    return graph_of(
        FrameTable(
            source, pl.DataFrame(columns), lambda row: f"node {shown(ids[row])}", spelt=special
        ),
        FrameTable(source, pl.DataFrame(edges), lambda row: f"edge {row + 1}"),
        name=name or str(graph.name or "graph"),
        schema=schema,
        missing=missing,
    )


class FrameTable(Table):
    """Columns that are in memory already; an error names the source and what ``place`` calls a row.

    >>> FrameTable("the graph", pl.DataFrame({"id": ["a"]}), lambda row: f"node {row}").frame.height
    1
    """

    def __init__(
        self,
        source: str,
        frame: pl.DataFrame,
        place: Callable[[int], str],
        spelt: Mapping[str, str | None] | None = None,
    ) -> None:
        self.source, self.frame, self._place = source, frame, place
        self.spelt = {column: name for column, name in (spelt or {}).items() if name is not None}
        self.is_csv = False

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.source

    def refuse(self, what: str, *, row: int | None = None, column: str | None = None) -> NoReturn:
        """Raise the error: source, place, what is the matter."""
        place = self.source
        if row is not None:
            place += f", {self._place(row)}"
        if column is not None:
            place += f", attribute {shown(self._spelt(column))}"
        raise DataError(f"{place}: {what}." if place != self.source else f"{place} {what}.")


def _values(
    source: str, ids: Sequence[str], attributes: Sequence[dict[Any, Any]], key: Any
) -> list[Any]:
    """One attribute of all nodes, None where there is none; each must be a single value."""
    values = [found.get(key) for found in attributes]
    for node, value in zip(ids, values, strict=True):
        if hasattr(value, "__len__") and not isinstance(value, str):
            raise DataError(
                f"{source}, node {shown(node)}, attribute {shown(key)}: is a "
                f"{type(value).__name__}; it must be a number, true or false, or text."
            )
    return [None if is_none(value) else _plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
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


def _refuse_mixed(source: str, ids: Sequence[str], key: str, values: Sequence[Any]) -> None:
    """Refuse a number in a feature of words, where one is the other's mistake."""
    for node, value in zip(ids, values, strict=True):
        if isinstance(value, int | float):
            raise DataError(
                f"{source}, node {shown(node)}, attribute {shown(key)}: is the number {value}, "
                "but other nodes have text; it must be the same kind for all."
            )
