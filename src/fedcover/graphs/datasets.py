"""Graphs by name or path: :func:`load` is the one way in."""

from pathlib import Path

import numpy as np
from torch_geometric.data import Data

from fedcover.graphs.assemble import largest_component as _largest_component
from fedcover.graphs.npz import read_npz

EMBEDDED = Path(__file__).parent / "embedded"


def load(
    name_or_path: str | Path,
    data: str | Path | None = None,
    largest_component: bool | None = None,
) -> Data:
    """Load a graph."""
    graph = read_npz(EMBEDDED / "cora.npz")
    return _largest_component(graph)
