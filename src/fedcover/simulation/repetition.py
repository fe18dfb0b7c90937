"""One seed's experiment: the graph, how it is cut, and the parties that hold its parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.algorithm.session import Session
from fedcover.carriers.loopback import Loopback
from fedcover.config import Config, recipe_of
from fedcover.graphs.assemble import bag_of_words, feature_matrix
from fedcover.graphs.partition import Partition, partition
from fedcover.graphs.splits import NO_ROLE
from fedcover.party.data import PartyData, cut_parties, gathered, whole_party
from fedcover.party.party import Party


@dataclass(frozen=True)
class Repetition:
    """One seed: every party's data, and from them what only a simulation sees at once."""

    graph: Data
    partition: Partition
    seed: int
    data: list[PartyData]

    @cached_property
    def roles(self) -> NDArray[np.int8]:
        """Of all nodes of the graph."""
        return gathered(self.partition, [party.roles for party in self.data])

    @cached_property
    def u(self) -> NDArray[np.float64]:
        """Of all nodes of the graph."""
        return gathered(self.partition, [party.u for party in self.data])


@dataclass
class Federation:
    """The parties of one repetition that a method is run with.

    ``owner`` holds everything in the method ``central``; the parties are then asked about its
    outputs for the nodes that were theirs.
    """

    repetition: Repetition
    parties: Sequence[Party]
    session: Session
    carried: Loopback
    owner: Party | None = None

    @property
    def trained(self) -> Sequence[Party]:
        """Who has the models."""
        return self.parties if self.owner is None else [self.owner]

    def gathered(self, by_party: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """What the parties hold, in the order of the graph's nodes."""
        if self.owner is not None:
            return by_party[0]
        return gathered(self.repetition.partition, by_party)


def prepare(graph: Data, config: Config, seed: int) -> Repetition:
    """Cut the graph and give every node its role."""
    parts = partition(graph, config.clients, config.partition, seed)
    restored = any(recipe_of(name).method.graph == "restored" for name in config.methods)
    data = cut_parties(graph, parts, config, seed, restored=restored)
    return Repetition(graph, parts, seed, data)


def federation(repetition: Repetition, config: Config) -> Federation:
    """The parties of a repetition, ready to be asked."""
    classes = len(repetition.graph.label_names)
    return _federation(repetition, [Party(one, config, classes) for one in repetition.data])


def centre(repetition: Repetition, config: Config) -> tuple[Federation, Federation]:
    """One owner of the whole graph who trains alone, and the parties that speak for it."""
    graph, partition = repetition.graph, repetition.partition
    data = whole_party(graph, partition, repetition.data)
    owner = Party(data, config, len(graph.label_names))
    shares = [
        owner.speaking_for(np.where(partition.client == k, data.roles, NO_ROLE), k)
        for k in range(partition.clients)
    ]
    return _federation(repetition, [owner]), _federation(repetition, shares, owner)


def _federation(
    repetition: Repetition, parties: Sequence[Party], owner: Party | None = None
) -> Federation:
    graph, names, first = repetition.graph, repetition.partition.names, parties[0]
    carried, features = Loopback(parties), int(graph.x.shape[1])
    known = first.config, first.classes, features, carried.census, names
    session = Session(*known, impute="missing" in graph)
    return Federation(repetition, parties, session, carried, owner)


def settled(config: Config, graph: Data) -> Config:
    """The configuration with what it leaves to the graph.

    Numbers of own tables are standardised, unless they look like counts of words, or rows are to
    have length one: either is a way to bring features to one scale.
    """
    unit_features, standardise = config.unit_features, config.standardise
    if unit_features is None:
        unit_features = not standardise and bag_of_words(feature_matrix(graph))
    if standardise is None:
        standardise = not unit_features and "numeric" in graph and bool(graph.numeric.any())
    return replace(config, unit_features=unit_features, standardise=standardise)
