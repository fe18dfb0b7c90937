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
from fedcover.config import BEST, BEST_LINKED, Config, recipe_of
from fedcover.config.settings import DEFAULT_METHODS, MATCHED
from fedcover.errors import UsageError
from fedcover.graphs.assemble import bag_of_words, feature_matrix
from fedcover.graphs.partition import Partition, partition
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
        return gathered(self.partition.client, [party.roles for party in self.data])

    @cached_property
    def u(self) -> NDArray[np.float64]:
        """Of all nodes of the graph."""
        return gathered(self.partition.client, [party.u for party in self.data])


@dataclass
class Federation:
    """The parties of one repetition that a method is run with; in ``central`` it is one."""

    repetition: Repetition
    parties: Sequence[Party]
    session: Session
    carried: Loopback

    @property
    def client(self) -> NDArray[np.integer]:
        """Which of these parties holds each node of the graph."""
        client = self.repetition.partition.client
        return client if len(self.parties) > 1 else np.zeros_like(client)

    def gathered(self, by_party: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """What the parties hold, in the order of the graph's nodes."""
        return gathered(self.client, by_party)


def prepare(graph: Data, config: Config, seed: int) -> Repetition:
    """Cut the graph and give every node its role."""
    parts = partition(graph, config.clients, config.partition, seed, config.beta)
    restored = any(recipe_of(name).method.graph == "restored" for name in config.methods)
    data = cut_parties(graph, parts, config, seed, restored=restored)
    return Repetition(graph, parts, seed, data)


def federation(repetition: Repetition, config: Config) -> Federation:
    """The parties of a repetition, ready to be asked."""
    classes = len(repetition.graph.label_names)
    if config.matching is None:
        links = sum(len(one.links.node) for one in repetition.data if one.links) // 2
        config = replace(config, matching="private" if links <= MATCHED else "open")
    return _federation(repetition, [Party(one, config, classes) for one in repetition.data])


def centre(repetition: Repetition, config: Config) -> Federation:
    """One owner of the whole graph, who trains and calibrates alone.

    Clients' shares and their limits mean nothing to it; clients with thresholds of their own are
    groups of its nodes.
    """
    graph, partition = repetition.graph, repetition.partition
    data, config = (
        whole_party(graph, partition, repetition.data),
        replace(config, client_shares=None, robust=0, max_share=1.0),
    )
    if config.calibrate == "client":
        client = partition.client.astype(np.int64)
        data = replace(data, group=client, group_names=partition.names)
        config = replace(config, calibrate="group")
    return _federation(repetition, [Party(data, config, len(graph.label_names))])


def _federation(repetition: Repetition, parties: Sequence[Party]) -> Federation:
    graph, names, first = repetition.graph, repetition.partition.names, parties[0]
    carried, features = Loopback(parties), int(graph.x.shape[1])
    known = first.config, first.classes, features, carried.census, names
    session = Session(*known, impute="missing" in graph)
    return Federation(repetition, parties, session, carried)


def settled(config: Config, graph: Data) -> Config:
    """The configuration with what it leaves to the graph.

    Where clients know edges between them, the recipe among the default methods uses these.

    Numbers of own tables are standardised, unless they look like counts of words, or rows are to
    have length one: either is a way to bring features to one scale.
    """
    unit_features, standardise = config.unit_features, config.standardise
    if unit_features is None:
        unit_features = not standardise and bag_of_words(feature_matrix(graph))
    if standardise is None:
        standardise = not unit_features and "numeric" in graph and bool(graph.numeric.any())
    cut_edges, methods = config.cut_edges, config.methods
    if cut_edges is None:
        linked, given = graph.get("linked", False), config.partition == "given"
        cut_edges = "known" if linked and given else "unknown"
        asking = [name for name in methods if recipe_of(name).neighbours]
        if linked and asking and not given:
            raise UsageError(
                f"methods has {asking[0]!r}, which needs edges between clients that both ends "
                f"know; those of {graph.name} are between its own clients, which --partition "
                "given, in Python Config(partition='given'), takes."
            )
    if cut_edges == "known" and methods == DEFAULT_METHODS:
        methods = tuple(BEST_LINKED if name == BEST else name for name in methods)
    return replace(
        config,
        unit_features=unit_features,
        standardise=standardise,
        cut_edges=cut_edges,
        methods=methods,
    )
