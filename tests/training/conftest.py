"""Small federations with unequal clients, one of them with a single training node."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from fedcover.training.plan import Federation, PartyGraph


def draw_client(rng: np.random.Generator, nodes: int, train: int, features: int, density: float):
    x = rng.normal(size=(nodes, features)) * (rng.random((nodes, features)) < density)
    edges = rng.integers(0, nodes, size=(2, 3 * nodes))
    edges = edges[:, edges[0] != edges[1]]
    both = np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1)
    order = rng.permutation(nodes)
    return PartyGraph(
        sp.csr_array(x) if density < 0.5 else x,
        both,
        rng.integers(0, 3, size=nodes),
        order[:train],
        order[train : train + max(train // 3, int(train > 1))],
    )


def small_federation(clients: int, density: float = 0.1, seed: int = 0) -> Federation:
    """Sizes from 6 to 60 nodes."""
    rng = np.random.default_rng([clients, seed])
    sizes = [(12, 1), (60, 23), (6, 2), (31, 9), (44, 14), (9, 3), (52, 20), (18, 5)]
    chosen = [sizes[1]] if clients == 1 else [sizes[k % len(sizes)] for k in range(clients)]
    members = [draw_client(rng, *size, features=40, density=density) for size in chosen]
    return Federation(members, seed)


@pytest.fixture
def make_federation() -> Callable[..., Federation]:
    """``make_federation(clients, density, seed)``."""
    return small_federation
