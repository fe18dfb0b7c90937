"""The repetitions that candidates are compared on, without the labels that must not be seen.

The graph is cut and split once, as the run with the same first seed does it. What repeats is the
training: other initial weights, other dropout and, unless the graph has a split of its own, another
choice of the validation nodes within the training share. A client has few validation nodes, and
over the folds most nodes of the share serve once as such.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.config import Config
from fedcover.errors import DataError
from fedcover.experiment.features import on_one_scale
from fedcover.experiment.methods import Repetition
from fedcover.experiment.run import prepare, settled
from fedcover.graphs.splits import Role

BLANK = 0  # the label that stands in for every one that may not be seen


def folds(graph: Data, config: Config, count: int) -> list[Repetition]:
    """So many repetitions; the first has the split that ``run`` draws for ``first_seed``.

    Features are brought to one scale by each repetition's own training nodes, as ``run`` does.
    """
    config = settled(config, graph)
    first = prepare(graph, config, config.first_seed)
    if not (first.roles == Role.VALID).any():
        raise DataError(
            f"{graph.name} has no validation nodes to choose by; raise train or valid, or give it "
            "a split column with some."
        )
    # By construction, not by discipline: a label that is not there cannot be read.
    blind = graph.clone()
    blind.y = graph.y.clone()
    blind.y[np.flatnonzero(~_share(first.roles))] = BLANK
    repetitions = []
    for number in range(count):
        roles, parts = first.roles, first.partition
        if number and "split" not in graph:
            rng = np.random.default_rng([config.first_seed, number, 0xF01D])
            roles = redrawn(first.roles, parts.client, rng)
        own, scaling, summed = on_one_scale(blind, parts, roles, bool(config.standardise))
        seed = config.first_seed + number
        repetitions.append(Repetition(own, parts, roles, seed, scaling, summed))
    return repetitions


def redrawn(
    roles: NDArray[np.int8], client: NDArray[np.integer], rng: np.random.Generator
) -> NDArray[np.int8]:
    """Deal training and validation anew inside each client's training share, as many of each."""
    result = roles.copy()
    share = _share(roles)
    for number in np.unique(client[share]):
        own = np.flatnonzero(share & (client == number))
        result[own] = rng.permutation(roles[own])
    return result


def _share(roles: NDArray[np.int8]) -> NDArray[np.bool_]:
    return np.isin(roles, (Role.TRAIN, Role.VALID))
