"""A graph that is small, but whose labels can be learned."""

from collections.abc import Callable

import numpy as np
import pytest
from torch_geometric.data import Data

from fedcover.graphs.assemble import assemble


@pytest.fixture
def learnable() -> Callable[..., Data]:
    """``learnable(nodes)``: three labels, features that tell them apart, edges between like nodes.

    Further arguments are columns of the graph, such as ``split``.
    """

    def make(nodes: int = 240, **columns: object) -> Data:
        rng = np.random.default_rng(11)
        y = rng.permutation(np.arange(nodes) % 3)
        x = np.eye(3)[y].repeat(2, axis=1) + rng.normal(scale=1.2, size=(nodes, 6))
        ends = rng.integers(0, nodes, size=(2, 6 * nodes))
        ends = ends[:, (y[ends[0]] == y[ends[1]]) | (rng.random(6 * nodes) < 0.1)]
        return assemble(
            x,
            ends,
            y,
            name="learnable",
            label_names=["a", "b", "c"],
            node_ids=np.arange(nodes),
            **columns,
        )

    return make
