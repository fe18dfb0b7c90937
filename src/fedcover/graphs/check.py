"""A graph made in Python, checked once, so that no later step has to (METIS would crash)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError, shown
from fedcover.graphs.assemble import assemble, feature_matrix
from fedcover.graphs.labels import NO_LABEL, repeated
from fedcover.graphs.splits import check_roles


def check_graph(graph: Data, *, labelled: bool = True) -> Data:
    """Return a graph that every later step may rely on, or say in one sentence what is wrong.

    Takes any PyG ``Data`` with ``x`` (n, features; finite floats), ``edge_index`` (2, m) and
    ``y`` (n,) of labels numbered from 0, at least two of them, and -1 for nodes without one;
    ``client``, ``split`` and ``group`` (n,) are optional. A graph that has the shape of
    :func:`fedcover.load` comes back as it is, after checks linear in its size. Any other is
    rebuilt: edges in both directions, sorted, without self-loops; the missing name is "graph", and
    missing names of labels, nodes, clients and groups are their numbers. Masks and other columns
    are then left behind. Without ``labelled``, any number of labels will do.
    """
    if not isinstance(graph, Data):
        raise UsageError(
            f"graph is a {type(graph).__name__}; it must be a PyG Data, as fedcover.load, "
            "fedcover.from_networkx and fedcover.from_scipy return."
        )
    x = _features(graph)
    n = len(x)
    y, label_names = _numbered(graph, "y", "label_names", n, least=NO_LABEL)
    known = y[y != NO_LABEL]
    if labelled and len(known) == 0:
        raise DataError("y has no label, only -1, which stands for none; there must be at least 2.")
    if labelled and known.min() == known.max():
        every = "every node" if len(known) == n else "every node that has one (-1 is none)"
        raise DataError(
            f"y has the same label, {label_names[known[0]]}, for {every}; there must be at least 2."
        )
    node_ids = _names(graph, "node_ids")
    if node_ids is not None and len(node_ids) != n:
        raise DataError(f"node_ids has {len(node_ids)} entries; the graph has {n} nodes.")
    marks: Any = {}
    for key in ("client", "group"):
        if key in graph:
            marks[key], marks[f"{key}_names"] = _numbered(graph, key, f"{key}_names", n)
    if "split" in graph:
        marks["split"] = _integers(graph, "split", (n,))
        check_roles(marks["split"])
    edges = _integers(graph, "edge_index", (2, -1))
    wrong = (edges < 0) | (edges >= n)
    if wrong.any():
        position = int(wrong.any(axis=0).argmax())
        node = edges[:, position][wrong[:, position]][0]
        raise DataError(
            f"edge_index has node {node} at position {position}; the graph has {n} nodes."
        )
    named = all(key in graph for key in ("name", "label_names", "node_ids", *marks))
    if named and _is_plain(graph, x.layout) and _is_undirected(edges, n):
        return graph
    return assemble(
        feature_matrix(Data(x=x)),
        edges,
        y,
        name=str(graph.get("name", "graph")),
        label_names=label_names,
        node_ids=np.arange(n) if node_ids is None else node_ids,
        columns=graph.get("columns"),
        missing=_integers(graph, "missing", (2, -1)) if "missing" in graph else None,
        **marks,
    )


def _tensor(graph: Data, key: str) -> torch.Tensor:
    value = graph.get(key)
    if value is None:
        raise DataError(f"The graph has no {key}; it needs x, edge_index and y.")
    if not isinstance(value, torch.Tensor):
        raise DataError(f"{key} is a {type(value).__name__}; it must be a torch tensor.")
    return value.detach().cpu()


def _features(graph: Data) -> torch.Tensor:
    """``x`` in float32, dense or CSR, with its shape and values checked."""
    x = _tensor(graph, "x")
    if x.dim() != 2 or 0 in x.shape:
        raise DataError(f"x has the shape {tuple(x.shape)}; it must be (nodes, features).")
    if not x.is_floating_point():
        raise DataError(f"x has the type {x.dtype}; it must hold floats.")
    if x.layout not in (torch.strided, torch.sparse_csr):
        x = x.to_sparse_csr()
    x = x.to(torch.float32)
    if not (x.values() if x.layout == torch.sparse_csr else x).isfinite().all():
        dense = x.to_sparse().coalesce()
        row, column = dense.indices()[:, ~dense.values().isfinite()][:, 0].tolist()
        raise DataError(f"x has a value in row {row}, column {column} that is not finite.")
    return x


def _integers(graph: Data, key: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """A tensor of integers of this shape (-1: any length) as an array."""
    values = _tensor(graph, key)
    seen = tuple(values.shape)
    if len(seen) != len(shape) or any(w not in (-1, s) for s, w in zip(seen, shape, strict=True)):
        wanted = str(shape).replace("-1", "edges")
        raise DataError(f"{key} has the shape {seen}; it must be {wanted}.")
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise DataError(f"{key} has the type {values.dtype}; it must hold integers.")
    return values.to(torch.int64).numpy()


def _names(graph: Data, key: str) -> Any:
    """Names in the order of their numbers, each of which stands once; None without them."""
    names = graph.get(key)
    if isinstance(names, str | Mapping):
        raise DataError(
            f"{key} is a {type(names).__name__}; it must be a list, in the numbers' order."
        )
    names = names.cpu().numpy() if isinstance(names, torch.Tensor) else names
    if names is not None and (twice := repeated(names)) is not None:
        raise DataError(f"{key} has {shown(twice)} twice; every name must stand for one thing.")
    return names


def _numbered(
    graph: Data, key: str, names_key: str, n: int, least: int = 0
) -> tuple[NDArray[np.int64], Any]:
    """Labels or clients (n,), numbered from 0, and their names: by default, the numbers."""
    values, names = _integers(graph, key, (n,)), _names(graph, names_key)
    # Without names, n nodes show at most n of them; a larger number is an id, not a count.
    limit = n if names is None else len(names)
    wrong = (values < least) | (values >= limit)
    if wrong.any():
        position = int(wrong.argmax())
        of = f"the graph has {n} nodes" if names is None else f"{names_key} has {limit} names"
        raise DataError(
            f"{key} has {values[position]} at position {position}; its numbers go from 0 to at "
            f"most {limit - 1}, since {of}."
        )
    return values, list(map(str, range(int(values.max()) + 1))) if names is None else names


def _is_plain(graph: Data, layout: torch.layout) -> bool:
    """Whether the tensors have the types, layouts and places that :func:`assemble` gives."""
    integers = [graph[key] for key in ("edge_index", "y", "client", "group") if key in graph]
    placed = [graph.x, *integers, *([graph.split] if "split" in graph else [])]
    return (
        not graph.x.requires_grad
        and not isinstance(graph.node_ids, torch.Tensor)
        and (graph.x.dtype, graph.x.layout) == (torch.float32, layout)
        and all(tensor.dtype == torch.int64 for tensor in integers)
        and all(tensor.device.type == "cpu" for tensor in placed)
    )


def _is_undirected(edges: NDArray[np.int64], n: int) -> bool:
    """Whether edges are sorted, unique, without self-loops, and there in both directions."""
    source, target = edges
    if (source == target).any() or (np.diff(source * n + target) <= 0).any():
        return False
    starts = np.searchsorted(source, np.arange(n + 1))
    rows = sparse.csr_array((np.ones(len(source), dtype=bool), target, starts), shape=(n, n))
    columns = rows.tocsc()
    return np.array_equal(rows.indices, columns.indices) and np.array_equal(
        rows.indptr, columns.indptr
    )
