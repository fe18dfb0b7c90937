"""Parties' folders: the graph that several hold together, and a graph cut into such folders.

``DIR/schema.json`` is what the parties agreed on; ``DIR/NAME/nodes``, ``edges`` and, where they
know edges to others' nodes, ``links`` are one party's, in the layout of
:mod:`fedcover.graphs.readers`.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import compress
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError
from fedcover.graphs.assemble import assemble, feature_matrix
from fedcover.graphs.labels import encode
from fedcover.graphs.links import COLUMNS as LINKS
from fedcover.graphs.links import link_texts, linked, matched
from fedcover.graphs.partition import Partition, client_graphs
from fedcover.graphs.readers import ENDS, read_folder, read_schema_of
from fedcover.graphs.schema import Kind, Schema, Type, read_schema
from fedcover.graphs.splits import ROLE_NAMES
from fedcover.graphs.tables import find_table

SCHEMA_FILE = "schema.json"


def site_folders(path: Path) -> list[Path]:
    """The folders in it that hold nodes, by name; none if it holds nodes itself."""
    if find_table(path, "nodes"):
        return []
    return sorted(f for f in path.iterdir() if f.is_dir() and find_table(f, "nodes"))


def read_sites(
    path: Path,
    schema: Schema | None = None,
    missing: str = "refuse",
    *,
    group: str | None = None,
    match: str | None = None,
) -> Data:
    """The graph that the parties hold together, each a client called as its folder.

    Without a ``schema`` or its file, the first party's features and the labels of all are agreed. A
    link that both its parties list, or nodes with the same key in the column ``match``, become an
    edge; the graph says how many links one party alone lists (``listed_once``), how many go to
    parties that have no folder (``absent``), and how many keys match (``keyed``).
    """
    folders = site_folders(path)
    if misplaced := find_table(path, "links"):
        raise DataError(f"{misplaced} is not read: links belong into a party's own folder.")
    agreed = path / SCHEMA_FILE
    columns = {"group": group, "match": match}
    if schema is None:
        schema = read_schema(agreed) if agreed.exists() else common_schema(folders, **columns)
    parts = [read_folder(folder, schema, missing, **columns) for folder in folders]
    named = list(zip(folders, parts, strict=True))
    without = [folder for folder, part in named if "split" not in part]
    if 0 < len(without) < len(parts):
        raise DataError(f"{without[0]} has no column 'split', which other parties' nodes have.")
    sizes = [int(part.num_nodes) for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    edges = [part.edge_index.numpy() + start for part, start in zip(parts, starts, strict=True)]
    gaps = [np.empty((2, 0), dtype=np.int64)]
    gaps += [
        part.missing.numpy() + np.array([[start], [0]])
        for part, start in zip(parts, starts, strict=True)
        if "missing" in part
    ]
    member, group_names = None, None
    if group is not None:
        spelt = [np.array(part.group_names, dtype=object)[part.group.numpy()] for part in parts]
        member, group_names = encode(np.concatenate(spelt).tolist())
    graph = assemble(
        sparse.vstack([sparse.csr_array(feature_matrix(part)) for part in parts], format="csr"),
        np.concatenate(edges, axis=1),
        np.concatenate([part.y.numpy() for part in parts]),
        name=path.resolve().name,
        label_names=schema.labels,
        node_ids=[f"{folder.name}/{node}" for folder, part in named for node in part.node_ids],
        columns=schema.features,
        missing=np.concatenate(gaps, axis=1),
        client=np.repeat(np.arange(len(parts)), sizes),
        client_names=[folder.name for folder in folders],
        split=None if without else np.concatenate([part.split.numpy() for part in parts]),
        group=member,
        group_names=group_names,
    )
    if match is not None:
        graph.match_keys = [key for part in parts for key in part.match_keys]
        graph.match_column = match
        return matched(graph)
    if not any("links" in part for part in parts):
        return graph
    node, text, to = [np.empty(0, dtype=np.int64)], [], list[str]()
    for folder, part, start in zip(folders, parts, starts, strict=True):
        if "links" in part:
            node.append(part.links.node + start)
            text += link_texts(part, folder.name)
            to += part.links.party
    there = pl.Series(to, dtype=pl.String).is_in(graph.client_names).to_numpy()
    graph.absent = dict(sorted(Counter(compress(to, ~there)).items()))
    return linked(graph, np.concatenate(node)[there], list(compress(text, there)))


def common_schema(
    folders: Sequence[Path], *, group: str | None = None, match: str | None = None
) -> Schema:
    """The first party's features, as loose as any party has them, and the labels of all."""
    own = [read_schema_of(folder, group=group, match=match) for folder in folders]
    _, labels = encode(sorted({label for schema in own for label in schema.labels}))
    features = tuple((name, _loosest(name, own)) for name in own[0].names)
    return Schema(features, tuple(labels))


def _loosest(name: str, schemas: Sequence[Schema]) -> Kind:
    """A column's type, so that every party's values fit: words of all, numbers, or bits."""
    kinds = [kind for schema in schemas for column, kind in schema.features if column == name]
    words = {word for kind in kinds if isinstance(kind, tuple) for word in kind}
    if words:
        return tuple(sorted(words))
    return "number" if "number" in kinds else "binary"


def copy_sites(
    path: Path, target: Path, *, group: str | None = None, match: str | None = None
) -> None:
    """Copy parties' tables into folders of the same names, beside the schema that they share."""
    folders, agreed = site_folders(path), path / SCHEMA_FILE
    schema = (
        read_schema(agreed) if agreed.exists() else common_schema(folders, group=group, match=match)
    )
    for folder in folders:
        site = target / folder.name
        site.mkdir(parents=True)
        for name in ("nodes", "edges", "links"):
            if (file := find_table(folder, name)) is not None:
                shutil.copyfile(file, site / file.name)
    (target / SCHEMA_FILE).write_text(schema.to_json() + "\n", encoding="utf-8")


def write_sites(
    path: Path,
    graph: Data,
    partition: Partition,
    roles: NDArray[np.int8],
    known: NDArray[np.int64] | None = None,
) -> Schema:
    """Cut a graph into parties' folders, whole or not at all.

    Of the cut edges, those that both ends know (``known``, (2, m), both ways) are both parties'
    links; the others are in none of the folders.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists and is not an empty folder; choose another one.")
    x = feature_matrix(graph)
    values = x.data if sparse.issparse(x) else x
    kind: Type = "binary" if np.isin(values, (0, 1)).all() else "number"
    features = [f"x{column}" for column in range(x.shape[1])]
    schema = Schema(tuple((name, kind) for name in features), tuple(graph.label_names))
    # The last entry, None, is where a node without a label, or role, points to with its -1.
    labels = np.array([*graph.label_names, None], dtype=object)[graph.y.numpy()]
    ids = np.asarray(graph.node_ids).astype(str)
    words = np.array([*ROLE_NAMES, None], dtype=object)[roles]
    dtype = np.uint8 if kind == "binary" else np.float32
    names = np.array([_site_name(partition, number) for number in range(partition.clients)])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
            beside = Path(folder) / path.name
            beside.mkdir()
            for number, part in enumerate(client_graphs(graph, partition)):
                own = part.nodes
                marks = {"label": labels[own].tolist(), "split": words[own].tolist()}
                nodes = pl.DataFrame(marks, dict.fromkeys(marks, pl.String))
                nodes.insert_column(0, pl.Series("id", ids[own]))
                dense = sparse.csr_array(x[own]).toarray().astype(dtype)
                once = part.edge_index[:, part.edge_index[0] < part.edge_index[1]]
                site = beside / str(names[number])
                site.mkdir()
                whole = nodes.hstack(pl.DataFrame(dense, schema=features))
                whole.write_parquet(site / "nodes.parquet")
                ends = dict(zip(ENDS, ids[own][once], strict=True))
                pl.DataFrame(ends).write_parquet(site / "edges.parquet")
                if known is not None:
                    node, far = known[:, partition.client[known[0]] == number]
                    party = names[partition.client[far]]
                    links = dict(zip(LINKS, (ids[node], party, ids[far]), strict=True))
                    pl.DataFrame(links).write_parquet(site / "links.parquet")
            (beside / SCHEMA_FILE).write_text(schema.to_json() + "\n", encoding="utf-8")
            if path.exists():
                path.rmdir()
            beside.rename(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error
    return schema


def _site_name(partition: Partition, number: int) -> str:
    """Names that sort as the clients are numbered."""
    if partition.names != tuple(map(str, range(partition.clients))):
        name = partition.names[number]
        if name.startswith(".") or "/" in name or "\\" in name or "\0" in name:
            raise DataError(f"the client {name!r} cannot be the name of a folder.")
        return name
    return f"site-{number + 1:0{len(str(partition.clients))}d}"
