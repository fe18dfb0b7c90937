"""The repetitions that candidates are compared on, without the labels that must not be seen.

The graph is cut and split once, as the run with the same first seed does it. What repeats is the
training: other initial weights, other dropout and, unless the graph has a split of its own, another
choice of the validation nodes within the training share. A client has few validation nodes, and
over the folds most nodes of the share serve once as such.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.config import Config
from fedcover.errors import DataError
from fedcover.graphs.splits import Role
from fedcover.party.data import PartyData
from fedcover.simulation.repetition import Repetition, prepare, settled

BLANK = 0  # the label that stands in for every one that may not be seen


def folds(graph: Data, config: Config, count: int) -> list[Repetition]:
    """So many repetitions; the first has the split that ``run`` draws for ``first_seed``."""
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
    parties = [
        replace(party, y=np.where(_share(party.roles), party.y, BLANK)) for party in first.data
    ]
    repetitions = []
    for number in range(count):
        seed, anew = config.first_seed + number, number and "split" not in graph
        data = [
            replace(party, seed=seed, roles=redrawn(party, number) if anew else party.roles)
            for party in parties
        ]
        repetitions.append(Repetition(blind, first.partition, seed, data))
    return repetitions


def redrawn(party: PartyData, number: int) -> NDArray[np.int8]:
    """Deal training and validation anew inside a party's training share, as many of each."""
    rng = np.random.default_rng([*party.key, number, 0xF01D])
    result = party.roles.copy()
    share = _share(party.roles)
    result[share] = rng.permutation(party.roles[share])
    return result


def _share(roles: NDArray[np.int8]) -> NDArray[np.bool_]:
    return np.isin(roles, (Role.TRAIN, Role.VALID))
