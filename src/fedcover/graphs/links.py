"""Edges whose other end another party holds, as the parties' tables know them.

A table ``links`` beside a party's nodes and edges has ``node``, an own node, ``party``, the name of
the other party, and ``other``, what that party calls its node. An edge counts where both parties
list it. Or a column of nodes is a key (``match``): two parties' nodes with the same key are linked.

A link has a text that both of its parties spell alike, and by which they find it.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError, listed
from fedcover.graphs.assemble import undirected
from fedcover.graphs.schema import Schema
from fedcover.graphs.tables import Table, find_table

COLUMNS = ("node", "party", "other")

Index = NDArray[np.int64]


@dataclass(frozen=True)
class ListedLinks:
    """One party's table of links: the own node's position, the other party, its node's id."""

    node: Index
    party: tuple[str, ...]
    other: tuple[str, ...]

    @property
    def by_party(self) -> dict[str, int]:
        """How many go to each other party, by name."""
        return dict(sorted(Counter(self.party).items()))


def read_links(folder: Path, nodes: Table, own: str, match: str | None) -> ListedLinks | None:
    """The links in the folder of the party ``own``, each once; None without such a table."""
    file = find_table(folder, "links")
    if file is None:
        for near in sorted(folder.iterdir()):
            if near.is_file() and near.name.partition(".")[0].casefold() in ("link", "links"):
                raise DataError(
                    f"{near} is not read: a party's links are in links.csv or links.parquet."
                )
        return None
    if match is not None:
        raise UsageError(
            f"match is {match!r}, but {file} lists links; take one of them, so that no neighbour "
            "counts twice."
        )
    if "client" in nodes.frame.columns:
        raise DataError(
            f"{file} is a party's own table, but {nodes.name} has a client column, so that it "
            "holds several parties' nodes; edges between these belong to the table of edges."
        )
    table = Table(file, COLUMNS, needed=COLUMNS, others=False)
    node, party, other = (table.text(column) for column in COLUMNS)
    table.refuse_where(party == own, "party", "{} is this party; a link goes to another one", party)
    ids = nodes.text("id")
    frame = pl.DataFrame({"id": node, "party": party, "other": other})
    places = pl.DataFrame({"id": ids}).with_row_index("at")
    found = frame.join(places, on="id", how="left", maintain_order="left")
    table.refuse_where(found["at"].is_null(), "node", "{} is not the id of a node", node)
    found = found.unique(["at", "party", "other"], keep="first", maintain_order=True)
    place = found["at"].to_numpy().astype(np.int64)
    return ListedLinks(place, tuple(found["party"]), tuple(found["other"]))


def link_texts(graph: Data, own: str) -> list[str]:
    """What both ends call each link of a party's graph; ``own`` is the party's name."""
    links, ids = graph.links, graph.node_ids
    ends = zip(links.node.tolist(), links.party, links.other, strict=True)
    return [link_text(f"{own}/{ids[node]}", f"{party}/{other}") for node, party, other in ends]


def link_text(one: str, other: str) -> str:
    """What both ends call a link between nodes of these names, which say whose they are."""
    return json.dumps(sorted((one, other)), ensure_ascii=False)


def key_text(key: str) -> str:
    """What all who have a node of this key call it."""
    return json.dumps(key, ensure_ascii=False)


def linked(graph: Data, node: Index, text: Sequence[str]) -> Data:
    """The parties' graph with an edge between the nodes of two parties that list the same link.

    ``node`` and ``text`` are all parties' lists together. How many links one party alone lists is
    kept as ``listed_once``, by the names of both.
    """
    sides = Counter(own for _, own in set(zip(node.tolist(), text, strict=True)))
    once = (json.loads(own) for own, count in sides.items() if count == 1)
    pairs = Counter(" and ".join(end.partition("/")[0] for end in ends) for ends in once)
    graph.listed_once = dict(sorted(pairs.items()))
    return _joined(graph, node, text)


def _joined(graph: Data, node: Index, text: Sequence[str]) -> Data:
    """The graph with an edge between any two of these nodes that have the same text."""
    listed = pl.DataFrame({"node": node, "text": pl.Series(text, dtype=pl.String)}).unique()
    pairs = listed.join(listed, on="text").filter(pl.col("node") < pl.col("node_right"))
    ends = pairs.select("node", "node_right").to_numpy().T.astype(np.int64)
    together = np.concatenate([graph.edge_index.numpy(), ends], axis=1)
    graph.edge_index = graph.edge_index.new_tensor(undirected(together, len(graph.y)))
    graph.linked = True
    return graph


def matched(graph: Data) -> Data:
    """The graph with an edge between any two clients' nodes that have the same key.

    How many nodes a client has, with a key, and with one that another client has, too, is kept as
    ``keyed``.
    """
    keys = graph.match_keys
    has = np.array([k for k, key in enumerate(keys) if key is not None], dtype=np.int64)
    often = Counter(keys[k] for k in has.tolist())
    found = np.array([often[key] > 1 if key is not None else False for key in keys], dtype=bool)
    client, names = graph.client.numpy(), graph.client_names
    whose = (client, client[has], client[found])
    counts = np.stack([np.bincount(own, minlength=len(names)) for own in whose], axis=1)
    graph.keyed = dict(zip(names, map(tuple, counts.tolist()), strict=True))
    return _joined(graph, has, [key_text(keys[k]) for k in has.tolist()])


def read_keys(nodes: Table, column: str) -> list[str | None]:
    """The key of every node, None where it has none; one stands for one node of a client."""
    keys = nodes.text(column, empty=True)
    both = pl.DataFrame({"key": keys})
    if "client" in nodes.frame.columns:
        both.insert_column(1, nodes.text("client").alias("client"))
    again = both.select(~pl.struct(both.columns).is_first_distinct()).to_series()
    why = "the key {} has been used before; it must stand for one node"
    nodes.refuse_where(again & keys.is_not_null(), column, why, keys)
    return keys.to_list()


@dataclass(frozen=True)
class LinkFacts:
    """Links that are not used, and whose keys match; party by party."""

    listed_once: dict[str, int] = field(default_factory=dict)  # by one of two parties alone
    absent: dict[str, int] = field(default_factory=dict)  # to parties that have no folder
    meant: tuple[str, ...] = ()  # parties whose names are spelt otherwise in these
    own: dict[str, int] = field(default_factory=dict)  # of a party's folder that is read alone
    keyed: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # nodes, keys, matches
    column: str = ""  # of keys

    def sentences(self) -> list[str]:
        """What a user is told."""
        said = []
        if self.listed_once:
            many = sum(self.listed_once.values())
            have = "link is" if many == 1 else "links are"
            said.append(
                f"{many:,} {have} listed by one party alone and not used, "
                f"{_counted(self.listed_once)}: an edge counts where both its parties list it."
            )
        if self.absent:
            many = sum(self.absent.values())
            are = "1 link is" if many == 1 else f"{many:,} links are"
            hint = f"; {listed(self.meant)} is spelt differently" if self.meant else ""
            said.append(f"{are} not used: there is no folder of {_counted(self.absent)}{hint}.")
        if self.keyed:
            each = [
                f"{name} has one for {has:,} of {nodes:,} nodes, and others have {found:,} of them"
                for name, (nodes, has, found) in self.keyed.items()
            ]
            said.append(f"keys ({self.column}): {'; '.join(each)}.")
        if self.own:
            said.append(
                f"the party's links, to {_counted(self.own)}, are not used: their far ends are not "
                "in this folder; take the one that holds all parties' folders."
            )
        return said


def link_facts(graph: Data) -> LinkFacts:
    """Those of a graph that was read."""
    absent = dict(graph.get("absent", {}))
    alike = {_plain(name): name for name in graph.get("client_names", ())}
    return LinkFacts(
        listed_once=dict(graph.get("listed_once", {})),
        absent=absent,
        meant=tuple(alike[_plain(name)] for name in absent if _plain(name) in alike),
        own=graph.links.by_party if "links" in graph else {},
        keyed=dict(graph.get("keyed", {})),
        column=graph.get("match_column", ""),
    )


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _counted(by_party: Mapping[str, int]) -> str:
    return listed([f"{name} ({count:,})" for name, count in by_party.items()])


def check_match(match: str | None, group: str | None, schema: Schema | None = None) -> None:
    """Refuse a column of keys that is something else, too."""
    if match is not None and schema is not None and match in schema.names:
        raise UsageError(
            f"match is {match!r}, which the agreed schema has as a feature; a key is no feature, "
            "so agree on a schema without it."
        )
    if match is not None and match in ("id", "label", "split", "client", group):
        raise UsageError(
            f"match is {match!r}, which says something else about a node; it must be another "
            "column of nodes."
        )
