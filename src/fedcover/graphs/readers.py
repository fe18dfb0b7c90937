"""An own graph from a folder: tables ``nodes`` and ``edges``, and a party's ``links``.

Both are CSV or TSV, plain or compressed, or Parquet (:mod:`fedcover.graphs.tables`). ``nodes``:
``id`` and ``label``; optionally ``client`` and ``split`` (train, valid, calib, test); every other
column is a feature, of numbers or of words. ``edges``: ``source`` and ``target``, which are ids;
other columns are not used, directions and repetitions do not matter, and no row at all means a
graph without edges. Ids, labels and clients are strings or integers, compared as strings without
the blanks around them. A node without a label stays in the graph, and out of every role. ``links``,
which a party's folder may have, is read by :mod:`fedcover.graphs.links`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError, shown
from fedcover.graphs.assemble import Marks, assemble
from fedcover.graphs.features import MAX_CATEGORIES, read_features
from fedcover.graphs.labels import NO_LABEL, encode, too_many
from fedcover.graphs.links import check_match, matched, read_keys, read_links
from fedcover.graphs.schema import Schema
from fedcover.graphs.splits import NO_ROLE, ROLE_NAMES, ROLE_WORDS, Role
from fedcover.graphs.tables import Table, find_table

NODE_COLUMNS = ("id", "label", "client", "split")  # those of nodes that are no features
ENDS = ("source", "target")  # the columns of edges that are used
UNCLEAR_LABELS = ("NA", "N/A", "#N/A", "<NA>", "NULL")  # may stand for none, or be a label
PER_GROUP = 20  # a column with fewer nodes a value, and many values, is no column of groups


def read_folder(
    path: str | Path,
    schema: Schema | None = None,
    missing: str = "refuse",
    *,
    group: str | None = None,
    match: str | None = None,
    own: str | None = None,
) -> Data:
    """Read and validate a graph; an error names the file, the line or row, and the column.

    With a schema it is one party's part of a graph, or a later state of one: it must have these
    columns, categories become the same features, and labels are numbered as the schema has them,
    of which it may have few, or none. ``missing`` says what happens to empty features:
    ``"refuse"``, or ``"impute"`` (a category stays zeros alone, a number is marked in
    ``graph.missing`` for the training nodes' mean). ``group`` names a column of ``nodes`` that is
    no feature but says which group a node is of, for calibration by group; ``match`` one of keys by
    which parties know the same node (``graph.match_keys``). A party's table of links is
    ``graph.links``; ``own`` is what the party is called (by default, as its folder).
    """
    path = Path(path)
    nodes = _nodes(path, schema, group, match)
    edges = Table(_file(path, "edges"), ENDS, needed=ENDS, others=False)
    name, marks = path.resolve().name, {"group": group, "match": match}
    graph = graph_of(nodes, edges, name=name, schema=schema, missing=missing, **marks)
    links = read_links(path, nodes, own or name, match)
    if links is not None:
        graph.links = links
    return matched(graph) if match is not None and "client" in graph else graph


def graph_of(
    nodes: Table,
    edges: Table,
    *,
    name: str,
    schema: Schema | None = None,
    missing: str = "refuse",
    group: str | None = None,
    match: str | None = None,
) -> Data:
    """The graph that two tables are, wherever they come from."""
    names = _feature_columns(nodes, group, match)
    ids = nodes.text("id")
    used = ~ids.is_first_distinct()
    nodes.refuse_where(used, "id", "the id {} has been used before", ids)
    if schema is not None:
        _refuse_difference(nodes, schema.difference_of_names(names))
        names = list(schema.names)
    x, columns, gaps = read_features(nodes, names, missing, schema)
    if schema is not None:
        _refuse_difference(nodes, schema.difference(Schema(columns, ())))
        columns = schema.features
    y, label_names = encode(*_labels(nodes, schema))
    marks: Marks = {}
    if "client" in nodes.frame.columns:
        marks["client"], marks["client_names"] = encode(nodes.text("client"))
    if "split" in nodes.frame.columns:
        marks["split"] = _split(nodes, y)
    if group is not None:
        marks["group"], group_names = encode(nodes.text(group))
        marks["group_names"] = group_names
        if len(group_names) > max(MAX_CATEGORIES, len(ids) / PER_GROUP):
            what = f"has {len(group_names):,} different values for {len(ids):,} nodes: too many for"
            nodes.refuse(f"{what} groups that are to have a threshold each", column=group)
    graph = assemble(
        x,
        _edges(edges, nodes),
        y,
        name=name,
        label_names=label_names,
        node_ids=ids.to_list(),
        columns=columns,
        missing=gaps,
        **marks,
    )
    if group is not None:
        graph.group_column = group
    if match is not None:
        graph.match_keys, graph.match_column = read_keys(nodes, match), match
    graph.source = nodes.name
    return graph


def read_schema_of(path: Path, *, group: str | None = None, match: str | None = None) -> Schema:
    """The schema that a party's own nodes have; ``group`` and ``match`` are no part of it."""
    nodes = _nodes(path, None, group, match)
    _, columns, _ = read_features(nodes, _feature_columns(nodes, group, match))
    _, labels = encode(_label_column(nodes).drop_nulls())
    return Schema(columns, tuple(labels))


def _nodes(path: Path, schema: Schema | None, group: str | None, match: str | None) -> Table:
    if group in ("id", "label", "split"):
        raise UsageError(
            f"group is {group!r}, which says something else about a node; it must be another "
            "column of nodes."
        )
    check_match(match, group, schema)
    own = tuple(name for name in (group, match) if name is not None)
    file, wanted = _file(path, "nodes"), (*NODE_COLUMNS, *own)
    label = ("label",) if schema is None else ()
    return Table(file, wanted, ("id", *label, *own), schema)


def _file(folder: Path, stem: str) -> Path:
    found = find_table(folder, stem)
    if found is None:
        raise DataError(
            f"{folder} has neither {stem}.csv nor {stem}.parquet, nor {stem}.tsv, nor a .csv or "
            ".tsv packed as .gz or .zst."
        )
    return found


def _refuse_difference(nodes: Table, difference: str) -> None:
    if difference:
        raise DataError(f"{nodes.name} is not what the schema says: {difference}.")


def _labels(nodes: Table, schema: Schema | None) -> tuple[pl.Series, Sequence[str] | None]:
    """Labels as text, null where there is none, and all names of labels if they are agreed."""
    labels = _label_column(nodes)
    if schema is not None:
        other = ~labels.is_in(list(schema.labels))
        nodes.refuse_where(other, "label", "{} is not among the agreed labels", labels)
        return labels, schema.labels
    known = labels.drop_nulls()
    if known.is_empty():
        nodes.refuse("is empty for every node", column="label")
    if known.n_unique() == 1:
        every = "every node" if len(known) == len(labels) else "every node that has one"
        nodes.refuse(f"has the same value, {shown(known[0])}, for {every}", column="label")
    if what := too_many(known.n_unique(), len(known)):
        nodes.refuse(what, column="label")
    return labels, None


def _label_column(nodes: Table) -> pl.Series:
    if "label" not in nodes.frame.columns:
        return pl.Series([None] * len(nodes.frame), dtype=pl.String)
    labels = nodes.text("label", empty=True)
    if nodes.is_csv:
        why = "{} may be a label or none; leave it empty where it is not known, or rename the label"
        nodes.refuse_where(labels.is_in(UNCLEAR_LABELS), "label", why, labels)
    return labels


def _feature_columns(nodes: Table, group: str | None = None, match: str | None = None) -> list[str]:
    if nodes.frame.is_empty():
        nodes.refuse("has no nodes")
    features = [name for name in nodes.frame.columns if name not in (*NODE_COLUMNS, group, match)]
    if not features:
        nodes.refuse("has no feature column; every column but id, label, client, split is one")
    return features


def _edges(table: Table, nodes: Table) -> NDArray[np.int64]:
    """The edges (2, m) as positions in the table of nodes."""
    ids = nodes.frame["id"]
    ends = []
    for column in ENDS:
        names = table.frame[column]
        # Integers of one type are the same where their texts are, and found several times faster.
        alike = names.dtype.is_integer() and names.dtype == ids.dtype and not names.has_nulls()
        names = names if alike else table.text(column)
        places = pl.DataFrame({"id": ids if alike else nodes.text("id")}).with_row_index("at")
        asked = pl.DataFrame({"id": names})
        end = asked.join(places, on="id", how="left", maintain_order="left")["at"]
        table.refuse_where(end.is_null(), column, "{} is not the id of a node", names)
        ends.append(end.to_numpy().astype(np.int64))
    return np.stack(ends)


def _split(nodes: Table, y: NDArray[np.int64]) -> NDArray[np.int8]:
    """The nodes' roles; one without a label has none, whatever stands there."""
    words = nodes.text("split", empty=True)
    labelled = pl.Series(y != NO_LABEL)
    nodes.refuse_where(words.is_null() & labelled, "split", "is empty")
    roles = role_numbers(words)
    why = f"{{}} is not one of {', '.join(ROLE_NAMES)}"
    nodes.refuse_where(roles.is_null() & words.is_not_null(), "split", why, words)
    numbers = roles.fill_null(NO_ROLE).to_numpy().copy()
    numbers[y == NO_LABEL] = NO_ROLE
    for role in (Role.TRAIN, Role.CALIB):  # without a test node nothing is measured
        if labelled.any() and role not in numbers:
            nodes.refuse(f"no node has {ROLE_NAMES[role]!r}", column="split")
    return numbers


def role_numbers(words: pl.Series) -> pl.Series:
    """The roles that words stand for, null where they stand for none."""
    return words.str.to_lowercase().replace_strict(ROLE_WORDS, default=None, return_dtype=pl.Int8)
