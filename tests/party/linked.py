"""Small federations whose parties know the edges between them, and a carrier that listens in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch_geometric.data import Data

from fedcover.algorithm.neighbours import exchange
from fedcover.algorithm.requests import Ask, Conversation, Question
from fedcover.carriers.loopback import Loopback
from fedcover.carriers.messages import queries_of, result_of, verb_of
from fedcover.config import Config, NeighbourSettings
from fedcover.conformal.protocol import Message
from fedcover.graphs.assemble import assemble
from fedcover.party import neighbours
from fedcover.party.data import Links
from fedcover.party.party import Party
from fedcover.plans import SUMS
from fedcover.simulation.repetition import federation, prepare

METHOD = "fed+neighbours"
Hook = Callable[[str, int, dict[str, Any]], Message | None]

# Four parties: nodes 0 and 1, 2 to 4, 5 and 6, 7 and 8; the edge 2 – 3 is inside one. Three more
# nodes have no edges: a party needs some of each role.
CLIENT = [0, 0, 1, 1, 1, 2, 2, 3, 3, 0, 2, 3]
EDGES = [(0, 2), (0, 3), (0, 5), (1, 2), (1, 5), (1, 6), (1, 7), (2, 3)]


def config(**changes: Any) -> Config:
    """Settings of a federation; those of +neighbours by their own names."""
    own = {name: changes.pop(name) for name in list(changes) if name in NEIGHBOUR}
    own = {"shared": False} | own
    settings = {
        "partition": "given",
        "cut_edges": "known",
        "matching": "private",
        "methods": (METHOD,),
        "neighbour": NeighbourSettings(**own),
        "rounds": 3,
        "hidden": 5,
        "seeds": 1,
        "alphas": (0.3,),
        "scores": ("lac",),
        "unit_features": False,
        "standardise": False,
    }
    return Config(**(settings | changes))


NEIGHBOUR = ("values", "least", "shared", "epsilon", "delta", "norm", "cap")


def graph_of(
    x: Any,
    client: Sequence[int] = CLIENT,
    edges: Sequence[tuple[int, int]] = EDGES,
    y: Sequence[int] | None = None,
    **columns: Any,
) -> Data:
    """A graph of named clients."""
    n = len(client)
    return assemble(
        x,
        np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        np.arange(n) % 2 if y is None else np.asarray(y),
        name="linked",
        label_names=[f"label {k}" for k in range(2 if y is None else max(y) + 1)],
        node_ids=[f"node-{k}" for k in range(n)],
        client=np.array(client),
        client_names=[f"party {k}" for k in range(max(client) + 1)],
        **columns,
    )


def random_graph(
    parties: int = 4, nodes: int = 60, edges: int = 400, features: int = 20, *, real: bool = False
) -> Data:
    """Nodes dealt out to parties one by one, so that most edges are cut."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(nodes, features)) if real else (rng.random((nodes, features)) < 0.3)
    roles = np.resize(np.arange(4, dtype=np.int8), nodes)
    split = np.random.default_rng(6).permutation(roles)
    return graph_of(
        np.asarray(x, dtype=float),
        (np.arange(nodes) % parties).tolist(),
        rng.integers(0, nodes, (edges, 2)).tolist(),
        np.resize(np.arange(3), nodes).tolist(),
        split=split,
    )


def parties_of(graph: Data, **changes: Any) -> list[Party]:
    """The parties of the first seed, who have not been asked anything yet."""
    settings = config(**changes)
    repetition = prepare(graph, settings, 0)
    return list(federation(repetition, settings).parties)


class Tapped(Loopback):
    """A carrier that keeps a copy of all that it carries, and may change it.

    ``before`` is given a verb, a party's number and its query, ``after`` the reply; each may change
    it in place or return another; a reply that is refused or None is lost, as over a network.
    """

    def __init__(
        self, parties: Sequence[Party], before: Hook | None = None, after: Hook | None = None
    ) -> None:
        super().__init__(parties)
        self._before, self._after = before, after
        self.up: list[tuple[str, int, Message]] = []
        self.down: list[tuple[str, int, Message]] = []

    def ask(self, request: Question) -> Any:
        queries, replies, verb = queries_of(request, self.census), {}, verb_of(request)
        for party in self.parties:
            if (number := party.number) not in queries:
                continue
            query: Any = dict(queries[number])
            if self._before is not None:
                query = self._before(verb, number, query) or query
            self.down.append((verb, number, copied(query)))
            reply: Any = party.answer(request.part, verb, request.round, query)
            self.up.append((verb, number, copied(reply)))
            reply = dict(reply)
            if self._after is not None:
                reply = self._after(verb, number, reply)
            if reply is None or (isinstance(request, Ask) and request.check(number, reply)):
                continue
            replies[number] = reply
        return result_of(request, replies, self.census, seed=self.parties[0].data.seed)

    def sent(self, verb: str) -> dict[int, list[Message]]:
        """What each party replied to this verb."""
        found: dict[int, list[Message]] = {}
        for what, number, reply in self.up:
            if what == verb:
                found.setdefault(number, []).append(reply)
        return found


def copied(message: Message) -> dict[str, Any]:
    return {name: np.array(array) for name, array in message.items()}


def talk(parties: Sequence[Party]) -> Conversation[Message]:
    """The exchange, as the coordinator leads it."""
    one = parties[0]
    names = [party.data.name for party in parties]
    census = Loopback(parties).census
    return exchange(one.config, one.classes, one.data.x.shape[1], census, names)


def exchanged(parties: Sequence[Party], **hooks: Hook) -> Tapped:
    """Parties that have their sums, and who carried them."""
    carrier = Tapped(parties, **hooks)
    carrier.carry(talk(parties))
    return carrier


def received(parties: Sequence[Party]) -> dict[tuple[int, int], tuple[int, list[float]]]:
    """By party and own node: the number of far ends, and their mean."""
    return {
        (party.number, int(node)): (int(number), mean.tolist())
        for party in parties
        for node, number, mean in zip(*(party.told[SUMS][k] for k in FIELDS), strict=True)
    }


FIELDS = ("node", "number", "mean")


def rows_of(party: Party) -> Any:
    """Where no sum is shared: the nodes that have a row, in the order of the rows."""
    return np.flatnonzero(neighbours.rows_of(party) >= 0)


def with_links(party: Party, links: Links, secret: int | None = None) -> Party:
    """The same party that lists other links."""
    kept = party.data.secret if secret is None else secret
    return Party(replace(party.data, links=links, secret=kept), party.config, party.classes)


def chosen(links: Links, keep: Any) -> Links:
    """Some entries of a list of links, in this order."""
    return Links(links.node[keep], links.party[keep], links.far[keep], links.key[keep])
