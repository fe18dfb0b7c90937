"""A party's own edges to other parties' nodes, from its table, and keys that nodes share."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover.errors import DataError, FedcoverError, UsageError
from fedcover.graphs import load
from fedcover.graphs.assemble import assemble
from fedcover.graphs.links import key_text, link_facts, link_text, link_texts, linked
from fedcover.graphs.readers import read_folder, read_schema_of
from fedcover.graphs.sites import common_schema, site_folders

LINKS = "node,party,other\nu,bob,7\nw,cleo,u\nu,bob,8\n"


@pytest.fixture
def ada(tmp_path: Path) -> Path:
    """A party with the nodes u, v and w."""
    return party(tmp_path / "ada", LINKS)


def party(folder: Path, links: str | bytes | None = None, suffix: str = ".csv", **columns) -> Path:
    """A party's folder; columns are added to its nodes."""
    folder.mkdir(parents=True)
    nodes = {"id": ["u", "v", "w"], "label": ["x", "y", "x"], "a": [1.0, 2.5, 3.0], **columns}
    pl.DataFrame(nodes).write_csv(folder / "nodes.csv")
    first, second, _ = nodes["id"]
    (folder / "edges.csv").write_text(f"source,target\n{first},{second}\n")
    if links is not None:
        content = links.encode() if isinstance(links, str) else links
        (folder / f"links{suffix}").write_bytes(content)
    return folder


def refusal(folder: Path, **columns: str) -> str:
    with pytest.raises(FedcoverError) as caught:
        load(folder, **columns)
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said.replace(f"{folder}/", "")


def test_links_by_hand(ada: Path) -> None:
    graph = read_folder(ada)
    assert graph.links.node.tolist() == [0, 2, 0]
    assert graph.links.party == ("bob", "cleo", "bob")
    assert graph.links.other == ("7", "u", "8")
    assert graph.links.by_party == {"bob": 2, "cleo": 1}
    assert graph.edge_index.tolist() == [[0, 1], [1, 0]]
    assert link_texts(graph, "ada")[0] == link_text("bob/7", "ada/u") == '["ada/u", "bob/7"]'


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".parquet"])
def test_every_kind_of_table(suffix: str, tmp_path: Path, ada: Path) -> None:
    text = LINKS.replace(",", "\t") if ".tsv" in suffix else LINKS
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(Path(suffix).suffix)
    other = party(tmp_path / "other" / "ada", pack(text.encode()) if pack else text, suffix)
    if suffix == ".parquet":
        pl.read_csv(LINKS.encode(), infer_schema=False).write_parquet(other / "links.parquet")
    found, expected = read_folder(other).links, read_folder(ada).links
    assert (found.party, found.other) == (expected.party, expected.other)
    assert np.array_equal(found.node, expected.node)


def test_links_of_integers_other_columns_and_other_names(tmp_path: Path) -> None:
    folder = party(tmp_path / "ada", id=[1, 2, 3])
    rows = {"amount": [9.5, 1.0], "Node ID": [3, 1], "site": ["bob", "bob"], "Other": [10, 11]}
    pl.DataFrame(rows).write_parquet(folder / "links.parquet")
    found = read_folder(folder).links
    assert found.node.tolist() == [2, 0]
    assert found.other == ("10", "11")


def test_a_node_may_be_called_nan(tmp_path: Path) -> None:
    links = "node,party,other\nnan,bob,NaN\n"
    found = read_folder(party(tmp_path / "ada", links, id=["nan", "v", "w"])).links
    assert (found.node.tolist(), found.other) == ([0], ("NaN",))


def test_a_link_twice_is_one_link(tmp_path: Path) -> None:
    links = f"{LINKS} u ,bob,8\nw,cleo, u\n"
    found = read_folder(party(tmp_path / "ada", links)).links
    assert found.node.tolist() == [0, 2, 0]


@pytest.mark.parametrize("table", ["node,party,other\n", "parquet", "null"])
def test_a_table_without_a_link(table: str, tmp_path: Path) -> None:
    folder = party(tmp_path / "ada", table if "," in table else None)
    if "," not in table:
        types = pl.String if table == "parquet" else pl.Null
        empty = pl.DataFrame(schema=dict.fromkeys(("node", "party", "other"), types))
        empty.write_parquet(folder / "links.parquet")
    links = read_folder(folder).links
    assert (links.node.tolist(), links.party, links.by_party) == ([], (), {})


BAD = {
    "unknown node": (f"{LINKS}x,bob,1\n", "links.csv, line 5, column 'node': 'x' is not the id"),
    "itself": (f"{LINKS}v,ada,u\n", "links.csv, line 5, column 'party': 'ada' is this party"),
    "no node": (f"{LINKS},bob,1\n", "links.csv, line 5, column 'node': is empty."),
    "no party": (f"{LINKS}v,,1\n", "links.csv, line 5, column 'party': is empty."),
    "no other": (f"{LINKS}v,bob,\n", "links.csv, line 5, column 'other': is empty."),
    "a blank": (f"{LINKS}v, ,1\n", "links.csv, line 5, column 'party': is empty."),
    "no column": ("node,party\nu,bob\n", "links.csv has no column 'other'; it has node, party."),
    "no column node": ("a,party,other\n", "links.csv has no column 'node' (nor id, node_id)"),
    "short row": (f"{LINKS}v,bob\n", "links.csv, line 5: has 2 fields, but the header has 3."),
    "wide row": (f"{LINKS}v,bob,1,2\n", "links.csv, line 5: has 4 fields"),
    "twice": ("node,party,other,other\n", "links.csv, line 1, column 'other': stands twice"),
    "two that mean one": (
        "id,node,party,other\n",
        "links.csv, line 1: the columns 'id' and 'node'",
    ),
    "nothing": ("", "links.csv is empty, but its first line must name the columns."),
    "a quote": (f'{LINKS}v,"bob,1\n', "links.csv, line 5: a quote in it is not closed"),
    "no text": (b"node,party,other\nu,\xff,1\n", "links.csv, line 2: is not text in UTF-8"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_wrong_is_said_with_its_place(kind: str, tmp_path: Path) -> None:
    links, words = BAD[kind]
    assert refusal(party(tmp_path / "ada", links)).startswith(words)


def test_a_type_that_names_nothing_is_refused(ada: Path) -> None:
    (ada / "links.csv").unlink()
    rows = {"node": ["u"], "party": ["bob"], "other": [0.5]}
    pl.DataFrame(rows).write_parquet(ada / "links.parquet")
    assert "column 'other': has the type Float64, not text or integers" in refusal(ada)


def test_two_tables_of_links_are_refused(ada: Path) -> None:
    (ada / "links.tsv").write_text("node\tparty\tother\n")
    assert "has both links.csv and links.tsv; keep one of them." in refusal(ada)


def test_links_where_nodes_are_of_several_clients_are_refused(tmp_path: Path) -> None:
    folder = party(tmp_path / "ada", LINKS, client=["p", "p", "q"])
    said = refusal(folder)
    assert said.startswith("links.csv is a party's own table, but nodes.csv has a client column")


def test_a_party_can_be_called_otherwise_than_its_folder(tmp_path: Path) -> None:
    folder = party(tmp_path / "data", "node,party,other\nu,data,1\n")
    assert read_folder(folder, own="ada").links.party == ("data",)
    with pytest.raises(DataError, match="line 2, column 'party': 'data' is this party"):
        read_folder(folder)


# What two parties list is an edge.


def test_a_link_counts_where_both_list_it(tmp_path: Path) -> None:
    party(tmp_path / "sites" / "ada", "node,party,other\nu,bob,u\nv,bob,w\nw,dan,u\nw,bob,ghost\n")
    party(tmp_path / "sites" / "bob", "node,party,other\nu,ada,u\nw,ada,w\n")
    graph = load(tmp_path / "sites")
    edges = {(a, b) for a, b in graph.edge_index.T.tolist() if a < b}
    assert edges == {(0, 1), (3, 4), (0, 3)}  # ada's u – v, bob's u – v, and the one of both
    assert graph.listed_once == {"ada and bob": 3}  # v – w, w – w, one to a ghost
    assert graph.absent == {"dan": 1}
    assert graph.linked


def test_parties_without_links_beside_one_that_has_some(tmp_path: Path) -> None:
    party(tmp_path / "sites" / "ada", LINKS)
    party(tmp_path / "sites" / "bob")
    graph = load(tmp_path / "sites")
    assert (graph.listed_once, graph.absent) == ({"ada and bob": 2}, {"cleo": 1})
    (tmp_path / "sites" / "ada" / "links.csv").unlink()
    assert "linked" not in load(tmp_path / "sites")


def test_what_is_wrong_with_one_party_s_links_names_its_file(tmp_path: Path) -> None:
    party(tmp_path / "sites" / "ada", LINKS)
    party(tmp_path / "sites" / "bob", "node,party,other\nx,ada,u\n")
    assert refusal(tmp_path / "sites").startswith("bob/links.csv, line 2, column 'node': 'x'")


PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25)


@settings(max_examples=80, deadline=None)
@given(PAIRS)
def test_edges_are_those_that_both_ends_list(pairs: list[tuple[int, int]]) -> None:
    """Six nodes of three parties; each pair (a, b) is a line in the table of a's party."""
    proper = [(a, b) for a, b in pairs if a // 2 != b // 2]
    names = [f"p{node // 2}/{node}" for node in range(6)]
    graph = bare(6)
    texts = [link_text(names[a], names[b]) for a, b in proper]
    found = linked(graph, np.array([a for a, _ in proper], dtype=np.int64), texts)
    both = {(a, b) for a, b in proper if (b, a) in proper}
    assert set(map(tuple, found.edge_index.T.tolist())) == both
    assert sum(found.listed_once.values()) == len(
        {(a, b) for a, b in proper if (b, a) not in proper}
    )


def bare(nodes: int) -> object:
    """A graph without edges."""
    return assemble(
        np.ones((nodes, 1)),
        np.empty((2, 0), np.int64),
        np.arange(nodes) % 2,
        name="bare",
        label_names=["x", "y"],
        node_ids=np.arange(nodes),
    )


def test_names_that_look_alike_make_other_links() -> None:
    texts = {link_text(a, b) for a, b in (("a/1", 'b", "c/2'), ('a/1", "b', "c/2"), ("a/1", "c/2"))}
    assert len(texts) == 3
    assert link_text("ä/1", "b/2") == link_text("b/2", "ä/1")
    assert json.loads(key_text('"ä')) == '"ä'


def test_what_is_not_used_is_said(tmp_path: Path) -> None:
    graph = bare(2)
    assert link_facts(graph).sentences() == []
    graph.client_names = ["ada", "Bob"]
    graph.listed_once = {"Bob and ada": 1}
    (once,) = link_facts(graph).sentences()
    assert once.startswith("1 link is listed by one party alone and not used, Bob and ada (1):")
    graph.listed_once, graph.absent = {"Bob and ada": 1200}, {"dan": 2, "bob": 1}
    several, absent = link_facts(graph).sentences()
    assert several.startswith("1,200 links are listed by one party alone")
    assert absent == (
        "3 links are not used: there is no folder of dan (2), bob (1); Bob is spelt differently."
    )
    del graph.listed_once, graph.absent
    graph.keyed, graph.match_column = {"ada": (3, 2, 1)}, "pid"
    (keys,) = link_facts(graph).sentences()
    assert keys == "keys (pid): ada has one for 2 of 3 nodes, and others have 1 of them."
    del graph.keyed
    graph.links = read_folder(party(tmp_path / "own", LINKS), own="eve").links
    (own,) = link_facts(graph).sentences()
    assert own.startswith("the party's links, to bob (2), cleo (1), are not used: their far ends")


def test_links_in_the_wrong_place_are_refused(tmp_path: Path) -> None:
    party(tmp_path / "sites" / "ada", LINKS)
    party(tmp_path / "sites" / "bob")
    beside = tmp_path / "sites" / "ada" / "links.csv"
    beside.rename(tmp_path / "sites" / "links.csv")
    assert "links.csv is not read: links belong into a party's own folder" in refusal(
        tmp_path / "sites"
    )
    (tmp_path / "sites" / "links.csv").rename(tmp_path / "sites" / "ada" / "Link.csv")
    assert "ada/Link.csv is not read: a party's links are in links.csv" in refusal(
        tmp_path / "sites"
    )


# Keys.


def test_nodes_of_two_clients_with_one_key_are_linked(tmp_path: Path) -> None:
    columns = {"client": ["p", "q", "q"], "pid": ["k1", "k1", None]}
    graph = load(party(tmp_path / "own", **columns), match="pid")
    assert set(map(tuple, graph.edge_index.T.tolist())) == {(0, 1), (1, 0)}
    assert graph.match_keys == ["k1", "k1", None]
    assert (graph.match_column, graph.linked, graph.keyed) == (
        "pid",
        True,
        {"p": (1, 1, 1), "q": (2, 1, 1)},
    )
    assert graph.feature_names == ["a"]


def test_keys_in_folders_of_parties(tmp_path: Path) -> None:
    for name, keys in (("ada", [5, None, 7]), ("bob", [7, 5, None]), ("cleo", [5, 8, 9])):
        party(tmp_path / "sites" / name, pid=keys)
    graph = load(tmp_path / "sites", match="pid")
    own = {(0, 1), (3, 4), (6, 7)}
    found = {(a, b) for a, b in graph.edge_index.T.tolist() if a < b}
    assert found - own == {(0, 4), (0, 6), (4, 6), (2, 3)}
    assert graph.feature_names == ["a"]
    assert common_schema(site_folders(tmp_path / "sites"), match="pid").names == ("a",)


def test_a_key_is_in_no_schema(tmp_path: Path) -> None:
    folder = party(tmp_path / "ada", pid=["k1", "k2", None])
    schema = read_schema_of(folder, match="pid")
    assert schema.names == ("a",)
    assert "pid" not in schema.to_json()
    with_key = read_schema_of(party(tmp_path / "bob", pid=[1, 2, 3]))
    with pytest.raises(
        UsageError, match="match is 'pid', which the agreed schema has as a feature"
    ):
        read_folder(tmp_path / "bob", with_key, match="pid")


def test_the_largest_component_keeps_its_keys(tmp_path: Path) -> None:
    columns = {"client": ["p", "p", "q"], "pid": ["k1", "k2", "k3"]}
    graph = load(party(tmp_path / "own", **columns), match="pid", largest_component=True)
    assert (graph.node_ids, graph.match_keys) == (["u", "v"], ["k1", "k2"])
    assert (graph.linked, graph.match_column) == (True, "pid")


BAD_KEYS: dict[str, tuple[dict[str, Sequence[object]], str]] = {
    "used twice": ({"pid": ["k", "l", "k"]}, "line 4, column 'pid': the key 'k' has been used"),
    "twice at a client": (
        {"pid": ["k", "l", "l"], "client": ["p", "q", "q"]},
        "line 4, column 'pid': the key 'l' has been used before",
    ),
    "no such column": ({}, "nodes.csv has no column 'pid'; it has id, label, a."),
    "no client": ({"pid": ["k", "l", "m"]}, "has no client column; match is a column of keys"),
}


@pytest.mark.parametrize("kind", BAD_KEYS)
def test_wrong_keys_are_refused_with_their_place(kind: str, tmp_path: Path) -> None:
    columns, words = BAD_KEYS[kind]
    assert words in refusal(party(tmp_path / "own", **columns), match="pid")


@pytest.mark.parametrize("column", ["id", "label", "split", "client"])
def test_a_key_is_nothing_else(column: str, ada: Path) -> None:
    said = refusal(ada, match=column)
    assert said.startswith(f"match is {column!r}, which says something else about a node")


def test_links_and_keys_are_not_taken_together(tmp_path: Path) -> None:
    party(tmp_path / "sites" / "ada", LINKS, pid=["k", "l", "m"])
    party(tmp_path / "sites" / "bob", pid=["k", "l", "m"])
    said = refusal(tmp_path / "sites", match="pid")
    assert said.startswith("match is 'pid', but ada/links.csv lists links; take one of them")


def test_a_named_graph_has_no_keys() -> None:
    with pytest.raises(UsageError, match="match is 'pid', but cora has no columns"):
        load("cora", match="pid")
