"""Arrays in, one PyG graph out: the single place where every reader's result gets its shape.

Whatever the source, a graph has both directions of every edge, no self-loop, no duplicate, and
features as ``torch.sparse_csr`` when fewer than one value in ten is not zero.
"""

import copy
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch_geometric.data import Data

from fedcover.graphs.schema import Column, feature_names, numeric_features

SPARSE_BELOW = 0.1
"""Features with a smaller share of non-zero values are kept sparse."""


WORDS_BELOW = 0.5
"""Of words, a text has fewer than this share."""

ONE_SCALE = 10.0
"""How much larger than the usual feature the largest may be."""


def assemble(
    x: sparse.csr_array | NDArray[np.floating],
    edges: NDArray[np.integer],
    y: NDArray[np.integer],
    *,
    name: str,
    label_names: Sequence[str],
    node_ids: Sequence[str] | NDArray[np.integer],
    client: NDArray[np.integer] | None = None,
    client_names: Sequence[str] | None = None,
    split: NDArray[np.integer] | None = None,
    group: NDArray[np.integer] | None = None,
    group_names: Sequence[str] | None = None,
    columns: Sequence[Column] | None = None,
    missing: NDArray[np.integer] | None = None,
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
    if client is not None:
        graph.client = torch.from_numpy(np.asarray(client, dtype=np.int64))
        graph.client_names = [str(client_name) for client_name in client_names or ()]
    if split is not None:
        graph.split = torch.from_numpy(np.asarray(split, dtype=np.int8))
    if group is not None:
        graph.group = torch.from_numpy(np.asarray(group, dtype=np.int64))
        graph.group_names = [str(group_name) for group_name in group_names or ()]
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


def largest_component(graph: Data) -> Data:
    """The largest connected component (the first one, if several are as large)."""
    source, target = graph.edge_index.numpy()
    n = int(graph.num_nodes)
    adjacency = sparse.coo_array((np.ones(len(source), bool), (source, target)), shape=(n, n))
    _, component = connected_components(adjacency, directed=False)
    return induced(graph, component == np.bincount(component).argmax())


def induced(graph: Data, keep: NDArray[np.bool_]) -> Data:
    """The graph on the nodes of the mask ``keep``, with everything that belongs to them."""
    if keep.all():
        return graph
    edges = graph.edge_index.numpy()
    new_index = np.cumsum(keep) - 1
    ids = graph.node_ids
    return assemble(
        feature_matrix(graph)[keep],
        new_index[edges[:, keep[edges].all(axis=0)]],
        graph.y.numpy()[keep],
        name=graph.name,
        label_names=graph.label_names,
        node_ids=ids[keep]
        if isinstance(ids, np.ndarray)
        else [ids[i] for i in np.flatnonzero(keep)],
        client=graph.client.numpy()[keep] if "client" in graph else None,
        client_names=graph.client_names if "client" in graph else None,
        split=graph.split.numpy()[keep] if "split" in graph else None,
        group=graph.group.numpy()[keep] if "group" in graph else None,
        group_names=graph.group_names if "group" in graph else None,
        columns=graph.columns if "columns" in graph else None,
        missing=_kept_cells(graph.missing.numpy(), keep) if "missing" in graph else None,
    )


def _kept_cells(missing: NDArray[np.int64], keep: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The cells in rows that are kept, at their new places."""
    rows, columns = missing[:, keep[missing[0]]]
    return np.stack([np.cumsum(keep)[rows] - 1, columns])


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
    rows, columns = x.shape
    nonzero = np.count_nonzero(x) if isinstance(x, np.ndarray) else x.count_nonzero()
    if nonzero >= SPARSE_BELOW * rows * columns:
        dense = x if isinstance(x, np.ndarray) else x.toarray()
        return torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32))
    matrix = sparse.csr_array(x, dtype=np.float32, copy=True)
    matrix.sum_duplicates()  # also sorts the columns of each row
    matrix.eliminate_zeros()
    with warnings.catch_warnings():  # torch calls its CSR layout beta, once a process
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data),
            size=(rows, columns),
            check_invariants=True,
        )


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
