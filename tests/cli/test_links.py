"""Edges that both their parties know, from the command line: cut, looked at, run, used again."""

import json
import re

import numpy as np
import polars as pl
import pytest

QUICK = ["--seeds", "1", "--rounds", "2", "--hidden", "4", "--resplits", "2", "--alphas", "0.1,0.3"]
DEFAULT = "fed+neighbours+prox+prior+mix"
NEW = "fedcover: note: 1 new node has no sum of neighbours at other clients"


@pytest.fixture
def cut(fedcover, here, write_graph):
    """Ninety nodes in a ring, and the folder ``sites`` of three parties who know all cut edges."""
    write_graph(here / "ring", nodes=90)
    split = ["--clients", "3", "--partition", "random", "--cut-edges", "known", "--out", "sites"]
    assert fedcover("partition", "ring", *split)[0] == 0
    return here


def words(text):
    return " ".join(text.replace("─", " ").split())


def append(file, rows):
    """Add rows to a table."""
    pl.concat([pl.read_parquet(file), rows]).write_parquet(file)


def test_what_partition_writes_run_reads_back(cut, fedcover):
    status, out, _ = fedcover(
        *("partition", "ring", "--clients", "3", "--partition", "random"),
        *("--cut-edges", "known", "--known-share", "0.5", "--out", "half"),
    )
    assert status == 0
    cut_edges, known = map(
        int, re.findall(r"(\d+) edges between.* (\d+) of them are links", out)[0]
    )
    assert known == round(cut_edges / 2)
    written = [len(pl.read_parquet(cut / f"half/site-{k}/links.parquet")) for k in (1, 2, 3)]
    assert sum(written) == 2 * known
    one = json.loads(fedcover("inspect", "sites", "--partition", "given", "--json")[1])
    cutting = ["--clients", "3", "--partition", "random", "--cut-edges", "known", "--json"]
    other = json.loads(fedcover("inspect", "ring", *cutting)[1])
    assert one["graph"]["edges"] == other["graph"]["edges"] == 180
    assert one["known_edges"] == other["known_edges"] == cut_edges
    for left, right in zip(one["clients"], other["clients"], strict=True):
        assert left["linked"] == right["linked"] > 0
        assert list(left["links"].values()) == list(right["links"].values())
        assert left["cut_edges"] == right["cut_edges"] == sum(left["links"].values())


def test_inspect_says_how_many_to_whom_and_what_they_bring(cut, fedcover):
    status, out, err = fedcover("inspect", "sites", "--partition", "given")
    assert (status, err) == (0, "")
    found = json.loads(fedcover("inspect", "sites", "--partition", "given", "--json")[1])
    first = found["clients"][0]
    assert "3+ far ends" in words(out)
    assert "links to other clients client site-1 site-2 site-3 site-1 0 " in words(out)
    row = f"site-1 0 {first['links']['site-2']} {first['links']['site-3']}"
    assert row in words(out)
    enough = sum(client["linked"] for client in found["clients"])
    assert f"{enough} nodes ({enough / 90:.1%}) with 3 or more of them" in words(out)
    assert any("both ends know" in sentence for sentence in found["sentences"])
    fewer = fedcover("inspect", "sites", "--partition", "given", "--neighbour-least", "9")[1]
    assert "0 nodes (0.0%) with 9 or more of them" in words(fewer)


def test_links_that_are_not_used_are_said_by_inspect_and_by_run(cut, fedcover):
    extra = [("n0", "site-9", "x"), ("n0", "site-2", "ghost"), ("n0", "site-3", "ghost")]
    for number in (1, 2, 3):
        nodes = pl.read_parquet(cut / f"sites/site-{number}/nodes.parquet")["id"]
        if "n0" in nodes:
            mine = [row for row in extra if row[1] != f"site-{number}"]
            more = pl.DataFrame(mine, schema=("node", "party", "other"), orient="row")
            append(cut / f"sites/site-{number}/links.parquet", more)
            alone = len(mine) - 1
    have = "link is" if alone == 1 else "links are"
    said = f"{alone} {have} listed by one party alone and not used"
    absent = "1 link is not used: there is no folder of site-9 (1)."
    out = words(fedcover("inspect", "sites", "--partition", "given")[1])
    assert said in out
    assert absent in out
    options = ["--partition", "given", "--methods", "fed", "--quiet"]
    status, _, err = fedcover("run", "sites", *QUICK, *options)
    assert status == 0
    assert f"fedcover: note: {said}" in err
    assert f"fedcover: note: {absent}" in err


def test_a_party_alone_does_not_use_its_links_and_that_is_said(cut, fedcover):
    options = ["--clients", "1", "--methods", "fed", "--quiet"]
    _, _, err = fedcover("run", "sites/site-1", *QUICK, *options)
    assert "fedcover: note: the party's links, to site-2 (" in err
    out = words(fedcover("inspect", "sites/site-1", "--clients", "1")[1])
    assert "are not used: their far ends are not in this folder" in out


def test_site_init_says_how_many_to_whom_and_what_they_bring(cut, fedcover):
    links = pl.read_parquet(cut / "sites/site-2/links.parquet")
    to = ", ".join(
        f"{count} to {party}" for party, count in sorted(links["party"].value_counts().rows())
    )
    status, out, _ = fedcover("site", "init", "sites/site-2", "--schema", "sites/schema.json")
    assert status == 0
    enough = (links["node"].value_counts()["count"] >= 3).sum()
    line = next(line for line in out.splitlines() if line.startswith("links: "))
    assert line.startswith(f"links: {len(links)} ({to}); nodes with 3 or more")
    assert f"the sum of their far ends: {enough}, if the other parties list them, too" in line
    links.with_columns(node=pl.lit("zz")).write_parquet(cut / "sites/site-2/links.parquet")
    status, _, err = fedcover("site", "init", "sites/site-2", "--schema", "sites/schema.json")
    assert (status, err.count("\n")) == (1, 1)
    assert "links.parquet, row 1, column 'node': 'zz' is not the id of a node." in err


def test_site_init_counts_keys_and_keeps_them_out_of_the_schema(fedcover, here, write_graph):
    keys = [f"k{i}" if i % 3 else None for i in range(24)]
    write_graph(here / "clinic", person=keys)
    status, out, _ = fedcover("site", "init", "clinic", "--match", "person")
    assert status == 0
    assert "24 nodes, 48 edges, 2 features, 2 labels" in out
    assert "keys (person): 16 nodes have one; other parties' nodes with the same are" in out
    assert "person" not in (here / "clinic/schema.json").read_text()


def test_the_default_recipe_takes_neighbours_up_and_says_so(cut, fedcover):
    status, out, err = fedcover("run", "sites", *QUICK, "--partition", "given", "--out", "r")
    assert status == 0
    assert (
        f"fedcover: note: clients know edges between them, so the default recipe is {DEFAULT}"
        in err
    )
    info = json.loads((cut / "r/run.json").read_text())
    assert info["config"]["methods"] == ["loc", "fed", DEFAULT, "central"]
    assert info["config"]["cut_edges"] == "known"
    share = info["cut_edges"][0] / 360
    assert f"sites, 3 clients as given, {share:.1%} of edges between clients, gcn" in words(out)
    assert min(info["chosen_on_validation"][DEFAULT]["received"][0]) > 0


@pytest.mark.parametrize(
    "options",
    [
        ["--methods", "fed+neighbours"],
        ["--methods", "fed+neighbours", "--cut-edges", "unknown"],
        ["--methods", "loc,fed+neighbours+mix", "--partition", "random"],
        ["--known-share", "0.5"],
    ],
)
def test_where_nobody_knows_links_neighbours_are_wrong_usage(options, fedcover, here):
    status, out, err = fedcover("run", "own", *QUICK, "--clients", "2", *options)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert ("which needs edges between clients that both ends know" in err) != (
        "share" in options[0]
    )
    assert not (here / "runs").exists()


def test_links_between_own_clients_are_taken_with_these(cut, fedcover):
    status, _, err = fedcover("run", "sites", *QUICK, "--methods", "fed+neighbours")
    assert (status, err.count("\n")) == (2, 1)
    assert "those of sites are between its own clients, which --partition given" in err
    _, _, err = fedcover("run", "sites", *QUICK, "--methods", "fed", "--quiet", "--clients", "2")
    assert "the graph names clients of its own, 3, which are not used" in err
    assert "default recipe" not in err


def test_nothing_is_known_where_too_few_are_linked(cut, fedcover):
    options = ["--partition", "given", "--methods", "fed+neighbours", "--neighbour-least", "999"]
    status, _, err = fedcover("run", "sites", *QUICK, *options, "--quiet")
    assert status == 0
    assert "+neighbours changes nothing: no sum has 999 or more far ends" in err


@pytest.fixture
def people(here, write_graph):
    """Sixty nodes of three clients; five people have a node at each of these."""
    keys = [f"k{i // 3}" if i < 15 else None for i in range(60)]
    write_graph(here / "people", nodes=60, client=[f"c{i % 3}" for i in range(60)], person=keys)
    return here


def test_keys_link_nodes_and_are_nowhere_else(people, fedcover):
    options = ["--partition", "given", "--match", "person"]
    found = json.loads(fedcover("inspect", "people", *options, "--json")[1])
    assert found["known_edges"] == 15  # not the ring's edges between clients
    assert found["graph"]["features"]["columns"] == 2
    status, _, err = fedcover(
        *("run", "people", *QUICK, *options, "--methods", "loc,fed+neighbours"),
        *("--neighbour-least", "2", "--out", "r"),
    )
    assert status == 0
    info = json.loads((people / "r/run.json").read_text())
    assert info["chosen_on_validation"]["fed+neighbours"]["received"][0] == [2] * 3  # of two people
    texts = [
        file for file in (people / "r").rglob("*") if file.is_file() and file.suffix != ".html"
    ]
    assert not [
        file for file in texts if b'"k3"' in file.read_bytes() or b"k3" in file.read_bytes()
    ]
    status, _, err = fedcover("run", "people", *QUICK, *options, "--quiet", "--out", "d")
    assert f"the default recipe is {DEFAULT}" in err


def as_run(folder, method):
    """What a run said of the nodes that it was asked about, at level 0.9."""
    rows = pl.read_parquet(folder / "sets.parquet")
    rows = rows.filter(pl.col("method") == method, pl.col("alpha") == 0.1)
    return dict(rows.select("node", "set").rows())


@pytest.mark.parametrize(
    "options",
    [
        ["--neighbour-values", "features"],
        ["--neighbour-values", "labels"],
        ["--neighbour-values", "encoding", "--standardise"],
    ],
)
def test_a_predictor_gives_the_sets_of_the_run(options, cut, fedcover):
    given = ["--partition", "given", "--methods", "fed+neighbours", "--quiet"]
    assert fedcover("run", "sites", *QUICK, *given, *options, "--out", "r")[0] == 0
    wanted = ["--alpha", "0.1", "--allow-empty", "--only", "test", "--out", "sets.json"]
    status, _, err = fedcover("predict", "r", "sites", *wanted)
    assert (status, err) == (0, "")
    found = pl.read_json(cut / "sets.json")
    assert dict(found.select("node", "set").rows()) == as_run(cut / "r", "fed+neighbours")


def test_a_predictor_of_keys_reads_them_again(people, fedcover):
    options = ["--partition", "given", "--match", "person", "--methods", "fed+neighbours"]
    least = ["--neighbour-least", "2", "--quiet", "--out", "r"]
    assert fedcover("run", "people", *QUICK, *options, *least)[0] == 0
    wanted = ["--alpha", "0.1", "--allow-empty", "--only", "test", "--out", "sets.json"]
    assert fedcover("predict", "r", "people", *wanted)[::2] == (0, "")
    found = pl.read_json(people / "sets.json")
    assert dict(found.select("node", "set").rows()) == as_run(people / "r", "fed+neighbours")


def test_on_a_graph_that_has_grown_it_says_what_new_nodes_lack(cut, fedcover):
    given = ["--partition", "given", "--methods", "fed+neighbours", "--quiet"]
    assert fedcover("run", "sites", *QUICK, *given, "--out", "r")[0] == 0
    file = cut / "sites/site-1/nodes.parquet"
    none = pl.lit(None, dtype=pl.String)
    more = pl.read_parquet(file).tail(1).with_columns(id=pl.lit("new"), label=none, split=none)
    append(file, more)
    status, out, err = fedcover("predict", "r", "sites", "--alpha", "0.1")
    assert status == 0
    assert err == f"{NEW}: these are made only during a run.\n"
    assert "1 new" in words(out)
    status, _, err = fedcover("predict", "r", "sites", "--alpha", "0.1", "--recalibrate")
    assert status == 0
    assert f"{NEW}: these are made only during a run; it is left out of all nodes alike." in err
    status, _, err = fedcover("predict", "r", "sites", "--alpha", "0.1", "--only", "test")
    assert (status, err) == (0, "")


def test_a_share_that_is_known_is_a_part_of_the_whole(cut, fedcover):
    cutting = ["--clients", "3", "--partition", "random", "--cut-edges", "known", "--json"]
    shares = [0.25, 0.5, 1.0]
    found = [
        json.loads(fedcover("inspect", "ring", *cutting, "--known-share", str(share))[1])
        for share in shares
    ]
    known = [one["known_edges"] for one in found]
    assert known == [round(share * known[-1]) for share in shares]
    linked = np.array([[client["linked"] for client in one["clients"]] for one in found])
    assert (np.diff(linked, axis=0) >= 0).all()
    run = ["--methods", "fed,fed+neighbours", "--known-share", "0.5", "--quiet", "--out", "r"]
    assert fedcover("run", "ring", *QUICK, *cutting[:-1], *run)[0] == 0
    config = json.loads((cut / "r/run.json").read_text())["config"]
    assert (config["cut_edges"], config["known_share"]) == ("known", 0.5)
