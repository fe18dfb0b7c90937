"""Arrays in, one PyG graph out: the single place where every reader's result gets its shape.

Whatever the source, a graph has both directions of every edge, no self-loop, no duplicate, and
features as ``torch.sparse_csr`` when fewer than one value in ten is not zero.
"""

import copy
import warnings
from collections.abc import Sequence
from itertools import compress
from typing import Any, TypedDict, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch_geometric.data import Data

from fedcover.errors import DataError
from fedcover.graphs.schema import Column, Schema, feature_names, numeric_features, schema_of

SPARSE_BELOW = 0.1  # features with a smaller share of non-zero values are kept sparse
WORDS_BELOW = 0.5  # of words, a text has fewer than this share
ONE_SCALE = 10.0  # how much larger than the usual feature the largest may be
ABOUT_LINKS = ("linked", "listed_once", "absent", "keyed", "match_column")  # see graphs.links


class Marks(TypedDict, total=False):
    """What may be known of the nodes besides, None where it is not."""

    client: NDArray[np.integer] | None
    client_names: Sequence[str] | None
    split: NDArray[np.integer] | None
    group: NDArray[np.integer] | None
    group_names: Sequence[str] | None


def assemble(
    x: sparse.csr_array | NDArray[np.floating],
    edges: NDArray[np.integer],
    y: NDArray[np.integer],
    *,
    name: str,
    label_names: Sequence[str],
    node_ids: Sequence[str] | NDArray[np.integer],
    columns: Sequence[Column] | None = None,
    missing: NDArray[np.integer] | None = None,
    **marks: Unpack[Marks],
) -> Data:
    """Make the graph that :func:`fedcover.load` returns; ``edges`` (2, m) may be in any order.

    ``columns`` are those of the table that ``x`` was made of, and ``missing`` (2, k) the cells of
    ``x`` that await a training mean.
    """
    graph = Data(
        x=_features(x),
        edge_index=torch.from_numpy(undirected(edges, len(y))),
        y=torch.from_numpy(np.asarray(y, dtype=np.int64)),
    )
    graph.name = name
    graph.label_names = [str(label) for label in label_names]
    graph.node_ids = node_ids if isinstance(node_ids, np.ndarray) else list(node_ids)
    for key, value in marks.items():
        if key.endswith("_names") and value is not None:
            graph[key] = [str(one) for one in cast(Sequence[str], value)]
        elif value is not None:
            dtype = np.int8 if key == "split" else np.int64
            graph[key] = torch.from_numpy(np.asarray(value, dtype=dtype))
    if columns is not None:
        graph.columns = list(columns)
        graph.feature_names = feature_names(columns)
        graph.numeric = torch.tensor(numeric_features(columns))
    if missing is not None and missing.shape[1]:
        graph.missing = torch.from_numpy(np.asarray(missing, dtype=np.int64))
    return graph


def undirected(edges: NDArray[np.integer], nodes: int) -> NDArray[np.int64]:
    """Both directions of every edge once, without self-loops, sorted by source, then target."""
    source, target = np.asarray(edges, dtype=np.int64).reshape(2, -1)
    proper = source != target
    source, target = source[proper], target[proper]
    # One integer an edge sorts far faster than pairs do, and far faster than np.unique hashes.
    keys = np.sort(np.concatenate([source * nodes + target, target * nodes + source]))
    first = np.diff(keys, prepend=-1) > 0
    return np.stack(np.divmod(keys[first], max(nodes, 1)))


def adjacency(graph: Data) -> sparse.csr_array:
    """The matrix (n, n) with 1 for every directed edge."""
    n, edges = int(graph.num_nodes), graph.edge_index.numpy()
    return sparse.csr_array((np.ones(edges.shape[1], dtype=np.int8), edges), shape=(n, n))


def components(graph: Data) -> tuple[int, NDArray[np.int32]]:
    """How many connected components there are, and the number (n,) of each node's."""
    count, component = connected_components(adjacency(graph), directed=False)
    return int(count), component


def largest_component(graph: Data) -> Data:
    """The largest connected component (the first one, if several are as large)."""
    _, component = components(graph)
    keep = component == np.bincount(component).argmax()
    if keep.all():
        return graph
    edges, place = graph.edge_index.numpy(), np.cumsum(keep) - 1
    ids, missing = graph.node_ids, None
    if "missing" in graph:
        rows, columns = graph.missing.numpy()
        missing = np.stack([place[rows], columns])[:, keep[rows]]
    known = {key: graph[key] for key in Marks.__annotations__ if key in graph}
    marks: Any = {key: v[keep] if torch.is_tensor(v) else v for key, v in known.items()}
    largest = assemble(
        feature_matrix(graph)[keep],
        place[edges[:, keep[edges[0]]]],
        graph.y.numpy()[keep],
        name=graph.name,
        label_names=graph.label_names,
        node_ids=ids[keep] if isinstance(ids, np.ndarray) else list(compress(ids, keep)),
        columns=graph.get("columns"),
        missing=missing,
        **marks,
    )
    for key in ABOUT_LINKS:
        if key in graph:
            largest[key] = graph[key]
    if "match_keys" in graph:
        largest.match_keys = list(compress(graph.match_keys, keep))
    return largest


def aligned(graph: Data, schema: Schema) -> Data:
    """The graph with the schema's features, wherever its own columns stand; a category that no
    node has is a feature of zeros. One that was not made of columns is left as it is."""
    if "columns" not in graph or tuple(graph.columns) == schema.features:
        return graph
    own = schema_of(graph)
    if difference := schema.difference(Schema(own.features, ())):
        raise DataError(f"{graph.name} is not what the predictor was trained with: {difference}.")
    place = {name: k for k, name in enumerate(schema.feature_names)}
    columns = np.array([place[name] for name in own.feature_names])
    x = sparse.csr_array(feature_matrix(graph)).tocoo()
    shape = (x.shape[0], len(place))
    other = with_features(graph, sparse.csr_array((x.data, (x.row, columns[x.col])), shape=shape))
    other.columns, other.feature_names = list(schema.features), list(place)
    if "missing" in graph:
        rows, gaps = graph.missing
        other.missing = torch.stack([rows, torch.from_numpy(columns)[gaps]])
    return other


def source_of(graph: Data) -> str:
    """What an error about a graph's nodes points at: the table, if it was read from one."""
    return str(graph.get("source", graph.name))


def with_features(graph: Data, x: sparse.csr_array | NDArray[np.floating]) -> Data:
    """The same graph with other features, none of them missing."""
    other = copy.copy(graph)
    other.x = _features(x)
    if "missing" in other:
        del other.missing
    return other


def feature_matrix(graph: Data) -> sparse.csr_array | NDArray[np.float32]:
    """The features outside torch: a scipy CSR array if they are sparse, else a numpy array."""
    x = graph.x
    if x.layout != torch.sparse_csr:
        return x.numpy()
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sparse.csr_array(parts, shape=tuple(x.shape))


def _features(x: sparse.csr_array | NDArray[np.floating]) -> torch.Tensor:
    """Float32 features, as ``torch.sparse_csr`` or dense, whichever their density asks for."""
    nonzero = np.count_nonzero(x) if isinstance(x, np.ndarray) else x.count_nonzero()
    if nonzero >= SPARSE_BELOW * x.shape[0] * x.shape[1]:
        dense = x if isinstance(x, np.ndarray) else x.toarray()
        return torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32))
    matrix = sparse.csr_array(x, dtype=np.float32, copy=True)
    matrix.sum_duplicates()  # also sorts the columns of each row
    matrix.eliminate_zeros()
    starts, columns = (
        torch.from_numpy(p.astype(np.int64)) for p in (matrix.indptr, matrix.indices)
    )
    values = torch.from_numpy(matrix.data)
    with warnings.catch_warnings():  # torch calls its CSR layout beta, once a process
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(starts, columns, values, size=x.shape, check_invariants=True)


def bag_of_words(x: sparse.csr_array | NDArray[np.floating]) -> bool:
    """Whether features look like words of a text: none negative, most zero, all of one scale.

    An age among indicators is not of their scale, and would drown them in a row of length one.
    """
    values: NDArray[np.floating] = np.asarray(x.data if sparse.issparse(x) else x)
    filled = np.count_nonzero(values) / max(x.shape[0] * x.shape[1], 1)
    if filled >= WORDS_BELOW or (values < 0).any():
        return False
    largest = x.max(axis=0).toarray().ravel() if sparse.issparse(x) else x.max(axis=0, initial=0)
    largest = largest[largest > 0]
    return len(largest) == 0 or bool(largest.max() <= ONE_SCALE * np.median(largest))
