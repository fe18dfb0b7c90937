"""The methods: which client graphs a federation trains on, and whether it averages.

A method turns the repetitions' cut graphs into :class:`~fedcover.federation.Federation` objects;
the training loop, the engine and everything after it are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.federation import Engine, Federation, PartyGraph, Plan, Trained
from fedcover.federation.ledger import Ledger
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.partition import ClientGraph, Partition, client_graphs
from fedcover.graphs.scaling import Scaling
from fedcover.graphs.splits import Role

if TYPE_CHECKING:
    from fedcover.experiment.config import Config
    from fedcover.neighbors.gen import Generated

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)``."""


@dataclass(frozen=True)
class Repetition:
    """One seed's experiment: the graph, how it is cut, and what each node is for."""

    graph: Data
    partition: Partition
    roles: NDArray[np.int8]
    seed: int
    scaling: Scaling | None = None  # what was done to the features of ``graph``
    summed_columns: int = 0  # how many of them the clients sent sums of, for that

    def by_client(self, role: Role, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The values of each client's nodes with this role; a client holds nothing else."""
        nodes = np.flatnonzero(self.roles == role)
        owner = self.partition.client[nodes]
        nodes = nodes[np.argsort(owner, kind="stable")]
        ends = np.cumsum(np.bincount(owner, minlength=self.partition.clients))
        return np.split(values[nodes], ends[:-1])


@dataclass(frozen=True)
class Setting:
    """What a method may use while it prepares its federations."""

    config: Config
    engine: Engine
    plan: Plan  # of the training that follows
    report: Progress
    made: dict[Any, Any] = field(default_factory=dict)  # for the same repetitions, by its settings

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What was made with these settings before, or else now."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]


@dataclass(frozen=True)
class Prepared:
    """One method on one repetition, ready to be trained."""

    federation: Federation
    parts: list[ClientGraph]
    ledger: Ledger = field(default_factory=Ledger)
    chosen: dict[str, Any] = field(default_factory=dict)  # on validation nodes
    notes: list[str] = field(default_factory=list)

    def logits(self, trained: Trained) -> NDArray[np.float32]:
        """The trained logits of the real nodes, in the graph's own order."""
        count = sum(len(part.nodes) for part in self.parts)
        logits = np.empty((count, trained.logits[0].shape[1]), dtype=np.float32)
        for part, rows in zip(self.parts, trained.logits, strict=True):
            logits[part.nodes] = rows[: len(part.nodes)]
        return logits


@dataclass(frozen=True)
class Method:
    """``prepare`` gives what is trained on, ``average`` says whether the clients' models are."""

    prepare: Callable[[Sequence[Repetition], Setting], list[Prepared]]
    average: bool = True
    model: str | None = None  # the method's own; None: the configuration's
    shared: bool = True  # whether several clients share a model
    federated: bool = True  # whether messages of this method would really cross a network
    simulation: bool = False  # whether it uses what no party has


def cut(repetition: Repetition) -> Prepared:
    """Every client with its own nodes and the edges between them."""
    return _with_parts(repetition, client_graphs(repetition.graph, repetition.partition))


def _whole(repetition: Repetition) -> Prepared:
    graph = repetition.graph
    whole = ClientGraph(np.arange(int(graph.num_nodes)), graph.edge_index.numpy())
    return _with_parts(repetition, [whole])


def _with_parts(repetition: Repetition, parts: list[ClientGraph]) -> Prepared:
    x = feature_matrix(repetition.graph)
    y, roles = repetition.graph.y.numpy(), repetition.roles
    clients = [
        PartyGraph(
            x[part.nodes],
            part.edge_index,
            y[part.nodes],
            np.flatnonzero(roles[part.nodes] == Role.TRAIN),
            np.flatnonzero(roles[part.nodes] == Role.VALID),
        )
        for part in parts
    ]
    prepared = Prepared(Federation(clients, repetition.seed), parts)
    if repetition.scaling is not None:
        prepared.ledger.record_statistics(len(parts), repetition.summed_columns)
    return prepared


def _restored(repetition: Repetition) -> Prepared:
    """Every client's graph with its cut edges, and the features of their far ends, given back."""
    from fedcover.neighbors.augment import augment

    bare, partition = cut(repetition), repetition.partition
    x, missing = feature_matrix(repetition.graph), partition.cut_edges
    clients = []
    for number, (part, client) in enumerate(zip(bare.parts, bare.federation.clients, strict=True)):
        lost = missing[:, partition.client[missing[1]] == number]
        far_ends, position = np.unique(lost[0], return_inverse=True)
        links = np.stack([position, np.searchsorted(part.nodes, lost[1])])
        clients.append(augment(client, x[far_ends], links))
    return replace(bare, federation=replace(bare.federation, clients=clients))


def _each(
    prepare: Callable[[Repetition], Prepared],
) -> Callable[[Sequence[Repetition], Setting], list[Prepared]]:
    def prepare_all(repetitions: Sequence[Repetition], setting: Setting) -> list[Prepared]:  # noqa: ARG001 (these methods need no setting)
        return [prepare(repetition) for repetition in repetitions]

    return prepare_all


def _gen(repetitions: Sequence[Repetition], setting: Setting) -> list[Prepared]:
    from fedcover.experiment.choice import choose
    from fedcover.neighbors.gen import generate

    config = setting.config

    def make() -> tuple[list[Prepared], list[Generated]]:
        bare = [cut(repetition) for repetition in repetitions]
        clients = sum(len(prepared.parts) for prepared in bare)
        return bare, generate(
            [prepared.federation for prepared in bare],
            config.gen,
            setting.engine,
            [prepared.ledger for prepared in bare],
            privacy=config.privacy,
            on_client=lambda done: setting.report("VAEs gen", done, clients),
            on_round=lambda done: setting.report("VGAE gen", done, config.gen.link_rounds),
        )

    # Prototypes and the VGAE depend neither on p nor on the model that is trained after.
    bare, generated = setting.once(
        ("gen", replace(config.gen, shares=(1.0,)), config.privacy), make
    )
    own = [replace(prepared, ledger=prepared.ledger.copy()) for prepared in bare]
    return choose(own, generated, setting)


def _fedsage_plus(repetitions: Sequence[Repetition], setting: Setting) -> list[Prepared]:
    from fedcover.neighbors.fedsage import mend

    settings = setting.config.neighgen

    def make() -> list[Prepared]:
        bare = [cut(repetition) for repetition in repetitions]
        mended = mend(
            [prepared.federation for prepared in bare],
            settings,
            [prepared.ledger for prepared in bare],
            on_round=lambda done: setting.report("generator fedsage+", done, settings.rounds),
        )
        return [
            replace(prepared, federation=federation)
            for prepared, federation in zip(bare, mended, strict=True)
        ]

    made: list[Prepared] = setting.once(("fedsage+", settings), make)
    return made


METHODS: dict[str, Method] = {
    "loc": Method(_each(cut), average=False, shared=False),
    "fed": Method(_each(cut)),
    "gen": Method(_gen),
    "fedsage": Method(_each(cut), model="sage"),
    "fedsage+": Method(_fedsage_plus, model="sage"),
    "restored": Method(_each(_restored), federated=False, simulation=True),
    "central": Method(_each(_whole), shared=False, federated=False),
}
"""``loc``: every client alone; ``fed``: FedAvg; ``gen``: FedAvg on graphs with generated
neighbours; ``fedsage``: FedAvg with GraphSAGE, ``fedsage+`` on graphs mended by NeighGen;
``restored``: FedAvg on graphs that have their true neighbours back, a simulation that shows what a
perfect generator would reach; ``central``: one owner of all edges, the bound."""
