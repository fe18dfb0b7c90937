"""Fixtures that several test folders share: tiny graphs, and the folder of the other data sets."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from fedcover.graphs.assemble import assemble


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Several pytest workers share the cores, so that each of them keeps to one."""
    torch.set_num_threads(1)


@pytest.fixture
def data_dir() -> Path:
    """The raw files of the other graphs; a test that asks for it is skipped aloud without them."""
    folder = os.environ.get("FEDCOVER_DATA")
    if not folder:
        pytest.skip("FEDCOVER_DATA is not set, so the raw files of the other graphs are not here")
    return Path(folder)


@pytest.fixture
def make_graph() -> Callable[..., Data]:
    """Build a small graph: ``make_graph(nodes, edges, ...)``; two labels, one-hot-like features."""

    def make(nodes: int, edges: object = (), **columns: object) -> Data:
        arguments = {
            "x": np.eye(nodes, 4) + 1,
            "y": np.arange(nodes) % 2,
            "name": "tiny",
            "label_names": ["even", "odd"],
            "node_ids": np.arange(nodes),
        }
        pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        return assemble(edges=pairs, **(arguments | columns))  # type: ignore[arg-type]

    return make


@pytest.fixture
def two_triangles(make_graph: Callable[..., Data]) -> Data:
    """Nodes 0, 1, 2 and 3, 4, 5 form triangles; the edge 2 – 3 joins them."""
    return make_graph(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)])


@pytest.fixture
def random_graph() -> Data:
    """60 nodes, about 180 edges, three labels, drawn once and for all."""
    rng = np.random.default_rng(7)
    return assemble(
        rng.normal(size=(60, 5)),
        rng.integers(0, 60, size=(2, 180)),
        rng.permutation(np.arange(60) % 3),
        name="random",
        label_names=["a", "b", "c"],
        node_ids=np.arange(60),
    )
