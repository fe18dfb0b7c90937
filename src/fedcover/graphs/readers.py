"""An own graph from a folder: ``nodes.(csv|parquet)`` and ``edges.(csv|parquet)``.

``nodes``: ``id`` and ``label``; optionally ``client`` and ``split`` (train, valid, calib, test);
every other column is a numeric feature. ``edges``: ``source`` and ``target``, which are ids;
other columns are not used, directions and repetitions do not matter, and no row at all means a
graph without edges. Ids, labels and clients are strings or integers, compared as strings.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError
from fedcover.graphs.assemble import assemble
from fedcover.graphs.labels import encode
from fedcover.graphs.schema import Schema, Type
from fedcover.graphs.splits import Role
from fedcover.graphs.tables import Table

NODE_COLUMNS = ("id", "label", "client", "split")
"""The columns of ``nodes`` that are not features."""


def read_folder(
    path: str | Path, schema: Schema | None = None, *, group: str | None = None
) -> Data:
    """Read and validate a graph; an error names the file, the line or row, and the column.

    ``group`` names a column of ``nodes`` that is no feature but says which group a node is of, for
    calibration by group.

    With a schema it is one party's part of a graph: it must have these features, and labels are
    numbered as the schema has them, of which a party may have few.
    """
    path = Path(path)
    nodes = _nodes(path, group)
    features = _features(nodes, group)
    ids = nodes.text("id")
    _refuse_repeated(nodes, ids)
    labels = nodes.text("label")
    x = nodes.numbers(features)
    if schema is not None:
        own = _schema(features, x, sorted(labels.unique()))
        if difference := schema.difference(own):
            raise DataError(f"{nodes.path} is not what the schema says: {difference}.")
        y, label_names = encode(labels, schema.labels)
    elif labels.n_unique() == 1:
        nodes.refuse(f"has the same value, {labels[0]!r}, for every node", column="label")
    else:
        y, label_names = encode(labels)
    client, client_names, split = None, None, None
    if "client" in nodes.frame.columns:
        client, client_names = encode(nodes.text("client"))
    if "split" in nodes.frame.columns:
        split = _split(nodes)
    member, group_names = None, None
    if group is not None:
        member, group_names = encode(nodes.text(group))
    return assemble(
        x,
        _edges(path, ids),
        y,
        name=path.resolve().name,
        label_names=label_names,
        node_ids=ids.to_list(),
        client=client,
        client_names=client_names,
        split=split,
        group=member,
        group_names=group_names,
    )


def read_schema_of(path: Path, *, group: str | None = None) -> Schema:
    """The schema that a party's own nodes have; the column ``group`` is no part of it."""
    nodes = _nodes(path, group)
    names = _features(nodes, group)
    _, labels = encode(nodes.text("label"))
    return _schema(names, nodes.numbers(names), labels)


def _schema(names: Sequence[str], x: NDArray[np.float32], labels: Sequence[str]) -> Schema:
    binary = ((x == 0) | (x == 1)).all(axis=0)
    types: list[Type] = ["binary" if only_bits else "number" for only_bits in binary]
    return Schema(tuple(zip(names, types, strict=True)), tuple(labels))


def _file(folder: Path, stem: str) -> Path:
    found = [file for file in (folder / f"{stem}.csv", folder / f"{stem}.parquet") if file.exists()]
    if not found:
        raise DataError(f"{folder} has neither {stem}.csv nor {stem}.parquet.")
    if len(found) > 1:
        raise DataError(f"{folder} has both {stem}.csv and {stem}.parquet; keep one of them.")
    return found[0]


def _nodes(folder: Path, group: str | None) -> Table:
    if group in ("id", "label", "split"):
        raise UsageError(
            f"group is {group!r}, which says something else about a node; it must be another "
            "column of nodes."
        )
    own = () if group is None else (group,)
    return Table(_file(folder, "nodes"), needed=("id", "label", *own), text=(*NODE_COLUMNS, *own))


def _features(nodes: Table, group: str | None = None) -> list[str]:
    if nodes.frame.is_empty():
        nodes.refuse("has no nodes")
    features = [name for name in nodes.frame.columns if name not in (*NODE_COLUMNS, group)]
    if not features:
        nodes.refuse("has no feature column; every column but id, label, client, split is one")
    return features


def _refuse_repeated(nodes: Table, ids: pl.Series) -> None:
    if ids.n_unique() < len(ids):
        row = int((~ids.is_first_distinct()).arg_max() or 0)
        nodes.refuse(f"the id {ids[row]!r} has been used before", row=row, column="id")


def _edges(folder: Path, ids: pl.Series) -> NDArray[np.int64]:
    """The edges (2, m) as positions in ``ids``."""
    table = Table(_file(folder, "edges"), needed=("source", "target"))
    ends = []
    for column in ("source", "target"):
        names = table.text(column)
        end = names.cast(pl.Enum(ids), strict=False)
        if end.has_nulls():
            row = int(end.is_null().arg_max() or 0)
            table.refuse(f"{names[row]!r} is not the id of a node", row=row, column=column)
        ends.append(end.to_physical().to_numpy().astype(np.int64))
    return np.stack(ends)


def _split(nodes: Table) -> NDArray[np.int8]:
    words = nodes.text("split")
    known = [role.name.lower() for role in Role]
    roles = words.cast(pl.Enum(known), strict=False)
    if roles.has_nulls():
        row = int(roles.is_null().arg_max() or 0)
        nodes.refuse(f"{words[row]!r} is not one of {', '.join(known)}", row=row, column="split")
    for role in (Role.TRAIN, Role.CALIB, Role.TEST):
        if not (roles == role.name.lower()).any():
            nodes.refuse(f"no node has {role.name.lower()!r}", column="split")
    return roles.to_physical().to_numpy().astype(np.int8)
