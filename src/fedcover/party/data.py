"""A party's data in one repetition: its graph, the roles of its nodes, and numbers of its own.

Randomness belongs to a party: roles and u are drawn from (seed, party number) alone, so that a
simulation and a party by itself draw the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.config import Config
from fedcover.graphs.assemble import feature_matrix
from fedcover.graphs.labels import NO_LABEL
from fedcover.graphs.links import key_text, link_text, link_texts
from fedcover.graphs.partition import ClientGraph, Partition, client_graphs
from fedcover.graphs.splits import NO_ROLE, Role, check_counts, is_asked, split
from fedcover.training.plan import Features


@dataclass(frozen=True)
class Links:
    """Edges to nodes of other parties, one entry each, as this party knows them."""

    node: NDArray[np.int64]  # the own end
    party: NDArray[np.int64]  # the number of the party that has the far end
    far: NDArray[np.int64]  # the far end: equal numbers, equal nodes, or equal keys
    key: NDArray[Any]  # what both parties call the link


@dataclass(frozen=True)
class PartyData:
    """One party's graph with the roles of its nodes; ``number`` is its own in the federation."""

    name: str
    number: int
    seed: int
    x: Features
    edge_index: NDArray[np.int64]
    y: NDArray[np.int64]
    roles: NDArray[np.int8]
    u: NDArray[np.float64]  # of APS and RAPS, one a node
    numeric: NDArray[np.bool_]  # which features are numbers other than 0 and 1
    missing: NDArray[np.int64] | None = None  # (2, m): cells of ``x`` that hold no value
    group: NDArray[np.int64] | None = None  # of every node, as an index into the names
    group_names: tuple[str, ...] = ()
    secret: int = 0  # private noise is drawn from it, too; a simulation, which repeats, has none
    links: Links | None = None  # edges to other parties that this one knows
    # What a simulation alone knows: the far ends of cut edges, and (2, m) their links to own nodes.
    far: "PartyData | None" = None
    far_links: NDArray[np.int64] | None = None

    @property
    def key(self) -> tuple[int, int]:
        """What its random numbers depend on."""
        return self.seed, self.number

    def nodes(self, role: Role) -> NDArray[np.int64]:
        """The nodes of this role."""
        return np.flatnonzero(self.roles == role)

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes there are, of which role, and without a label: all that the coordinator
        learns of them."""
        roles = {role.name.lower(): len(self.nodes(role)) for role in Role}
        unlabelled = int((self.roles == NO_ROLE).sum())
        return {"nodes": len(self.roles)} | roles | {"unlabelled": unlabelled}

    @property
    def asked(self) -> NDArray[np.int64]:
        """The nodes that sets are made for: test nodes, and those without a label."""
        return np.flatnonzero(is_asked(self.roles))


def party_data(graph: Data, config: Config, seed: int, number: int, name: str) -> PartyData:
    """The party that holds this graph, as a site does."""
    return _with_roles(_unassigned(graph, seed, number, name), config, _given_split(graph))


def cut_parties(
    graph: Data, partition: Partition, config: Config, seed: int, *, restored: bool = False
) -> list[PartyData]:
    """The parties of a simulation: every one with its own nodes and the edges between them.

    ``restored`` gives them the far ends of the edges that the cut took, too.
    """
    parties = []
    known = known_edges(graph, partition, config, seed)
    whole, given, cut = _unassigned(graph, seed, 0, ""), _given_split(graph), partition.cut_edges
    for number, part in enumerate(client_graphs(graph, partition)):
        own = replace(_part(whole, part), number=number, name=partition.names[number])
        data = _with_roles(own, config, None if given is None else given[part.nodes])
        if known is not None:
            data = replace(data, links=_links(graph, known, partition, part, number))
        if restored:
            lost = cut[:, partition.client[cut[1]] == number]
            far, place = np.unique(lost[0], return_inverse=True)
            links = np.stack([place, np.searchsorted(part.nodes, lost[1])])
            data = replace(data, far=_part(whole, ClientGraph(far, lost[:, :0])), far_links=links)
        parties.append(data)
    check_counts(Role.TEST, [len(one.nodes(Role.TEST)) for one in parties], partition.names)
    return parties


def known_edges(
    graph: Data, partition: Partition, config: Config, seed: int
) -> NDArray[np.int64] | None:
    """The cut edges (2, m), both ways, that both ends know: all, or a share of them, or None.

    Where clients know each other's nodes by keys, they know no other edge.
    """
    if config.cut_edges != "known":
        return None
    share = config.known_share
    once = partition.cut_edges[:, partition.cut_edges[0] < partition.cut_edges[1]]
    if partition.method == "given" and "match_keys" in graph:
        keys = graph.match_keys
        alike = [keys[a] is not None and keys[a] == keys[b] for a, b in once.T.tolist()]
        once = once[:, np.array(alike, dtype=bool)]
    if share < 1:
        # One order for all shares: whoever knows more knows what those with less know.
        order = np.random.default_rng([seed, 0x71E5]).permutation(once.shape[1])
        once = once[:, np.sort(order[: round(share * once.shape[1])])]
    return np.concatenate([once, once[::-1]], axis=1)


def _links(
    graph: Data, known: NDArray[np.int64], partition: Partition, part: ClientGraph, number: int
) -> Links:
    client = partition.client
    far, own = known[:, client[known[1]] == number]
    key: NDArray[Any] = np.minimum(far, own) * len(client) + np.maximum(far, own)
    if partition.method == "given" and graph.get("linked", False):  # as the parties themselves
        keys, ids = graph.get("match_keys"), graph.node_ids
        spelt = (
            link_text(str(ids[a]), str(ids[b])) if keys is None else key_text(keys[a])
            for a, b in zip(own.tolist(), far.tolist(), strict=True)
        )
        key = np.array(list(spelt), dtype=object)
        whom = far if keys is None else np.unique(key, return_inverse=True)[1]
        return Links(np.searchsorted(part.nodes, own), client[far], whom, key)
    return Links(np.searchsorted(part.nodes, own), client[far], far, key)


def listed_links(
    graph: Data, name: str, number: int, parties: int, number_of: Callable[[str], int | None]
) -> Links:
    """The links that a party's own tables list to the other parties of a job, and to nobody else.

    ``number_of`` is the number of the party of this name; None for one that takes no part.
    """
    none = np.empty(0, dtype=np.int64)
    if "match_keys" in graph:  # whoever has the same key is its other end
        node = np.array([k for k, key in enumerate(graph.match_keys) if key is not None], np.int64)
        text = np.array([key_text(graph.match_keys[k]) for k in node.tolist()], dtype=object)
        others = np.delete(np.arange(parties), number)
        every = [np.tile(one, len(others)) for one in (node, np.arange(len(node)), text)]
        return Links(every[0], np.repeat(others, len(node)), *every[1:])
    if "links" not in graph:
        return Links(none, none, none, none)
    links = graph.links
    numbers = {party: number_of(party) for party in dict.fromkeys(links.party)}
    party = np.array([numbers[other] for other in links.party], dtype=np.float64)  # None: NaN
    ends = list(zip(links.party, links.other, strict=True))
    place = {end: k for k, end in enumerate(dict.fromkeys(ends))}
    far = np.array([place[end] for end in ends], dtype=np.int64)
    text, there = np.array(link_texts(graph, name), dtype=object), ~np.isnan(party)
    return Links(links.node[there], party[there].astype(np.int64), far[there], text[there])


def whole_party(graph: Data, partition: Partition, parties: Sequence[PartyData]) -> PartyData:
    """One owner of everything, with the roles and the numbers that the parties have drawn."""
    roles = gathered(partition.client, [party.roles for party in parties])
    u = gathered(partition.client, [party.u for party in parties])
    return replace(_unassigned(graph, parties[0].seed, 0, "0"), roles=roles, u=u)


def gathered(client: NDArray[np.integer], by_party: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """What the parties hold, in the order of the whole graph's nodes; ``client`` says whose each
    node is."""
    joined = np.concatenate(by_party)
    whole = np.empty_like(joined)
    whole[np.argsort(client, kind="stable")] = joined
    return whole


def _unassigned(graph: Data, seed: int, number: int, name: str) -> PartyData:
    """The data of a party whose nodes have no roles yet."""
    n, x = int(graph.num_nodes), feature_matrix(graph)
    return PartyData(
        name=name,
        number=number,
        seed=seed,
        x=x,
        edge_index=graph.edge_index.numpy(),
        y=graph.y.numpy(),
        roles=np.full(n, NO_ROLE, dtype=np.int8),
        u=np.zeros(n),
        numeric=graph.numeric.numpy().astype(bool) if "numeric" in graph else _numeric(x),
        missing=graph.missing.numpy() if "missing" in graph else None,
        group=graph.group.numpy() if "group" in graph else None,
        group_names=tuple(graph.group_names) if "group" in graph else (),
    )


def _numeric(x: Features) -> NDArray[np.bool_]:
    """Which features have values other than 0 and 1, where no table says so."""
    if isinstance(x, np.ndarray):
        return np.asarray(((x != 0) & (x != 1)).any(axis=0))
    marks = np.zeros(x.shape[1], dtype=bool)
    marks[x.indices[(x.data != 0) & (x.data != 1)]] = True
    return marks


def _given_split(graph: Data) -> NDArray[np.integer] | None:
    return graph.split.numpy() if "split" in graph else None


def _with_roles(data: PartyData, config: Config, given: NDArray[np.integer] | None) -> PartyData:
    roles = split(
        np.zeros(len(data.y), dtype=np.int64),
        np.random.default_rng([*data.key, 0x5917]),
        train=config.train,
        valid=config.valid,
        test=config.test,
        given=given,
        names=[data.name],
        labelled=data.y != NO_LABEL,
    )
    u = np.random.default_rng([*data.key, 0xC0F]).random(len(data.y))
    return replace(data, roles=roles, u=u)


def _part(whole: PartyData, part: ClientGraph) -> PartyData:
    """Some nodes with what belongs to them, and the edges of this part."""
    nodes, missing = part.nodes, whole.missing
    if missing is not None:
        place = np.full(len(whole.y), -1)
        place[nodes] = np.arange(len(nodes))
        missing = np.stack([place[missing[0]], missing[1]])
        missing = missing[:, missing[0] >= 0]
    return replace(
        whole,
        x=whole.x[nodes],
        edge_index=part.edge_index,
        y=whole.y[nodes],
        roles=whole.roles[nodes],
        u=whole.u[nodes],
        missing=missing,
        group=None if whole.group is None else whole.group[nodes],
    )
