"""``fedcover inspect``: streams, exit status, and the same numbers as ``run``."""

import json
import sys

import numpy as np
import polars as pl
import pytest

from fedcover import cli


@pytest.fixture
def inspect(monkeypatch, capsys, tmp_path):
    """``inspect("cora", …)`` gives exit status, stdout and stderr, from an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, command="inspect"):
        monkeypatch.setattr(sys, "argv", ["fedcover", command, *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return (end.value.code, *capsys.readouterr())

    return call


def write(folder, clients, seed=0):
    """A graph with a client column: ``clients`` maps names to numbers of nodes."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(list(clients), list(clients.values()))
    n = len(owner)
    folder.mkdir()
    columns = {"id": np.arange(n), "label": np.arange(n) % 3, "client": owner}
    columns |= {"flag": np.arange(n) % 2, "size": rng.normal(size=n)}
    pl.DataFrame(columns).write_csv(folder / "nodes.csv")
    ends = rng.integers(0, n, (2, 3 * n))
    pl.DataFrame({"source": ends[0], "target": ends[1]}).write_csv(folder / "edges.csv")


def test_it_shows_graph_clients_and_meaning(inspect, tmp_path):
    write(tmp_path / "own", {"north": 90, "south": 60})
    status, out, err = inspect("own", "--partition", "given", "--alpha", "0.1", "--alpha", "0.01")
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    assert "nodes 150, of which" in words
    assert "features 2: 1 numeric, 1 of 0 and 1; dense" in words
    assert "labels 3: 0 50, 1 50, 2 50" in words
    assert "2 clients, partition given" in words
    assert "north 90 90 36 " in words
    assert "60 calibration nodes at 2 clients" in words
    assert "at least 1 − α and at most 0.0333 above it" in words  # 2/N
    assert "alpha = 0.1: enough calibration nodes; expect between 0.9 and 0.9333" in words
    assert "alpha = 0.01: too few calibration nodes, 60; at least 100 are needed" in words


def test_json_holds_the_same_and_nothing_else_is_printed(inspect):
    status, out, err = inspect("cora", "--clients", "5", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["graph"]["nodes"], found["graph"]["edges"]) == (2485, 5069)
    assert len(found["clients"]) == 5
    assert [promise["alpha"] for promise in found["promises"]] == [0.05, 0.1, 0.2]
    assert sum(client["nodes"] for client in found["clients"]) == 2485
    assert any("expected coverage is at least" in text for text in found["sentences"])


def test_it_counts_what_run_calibrates_on_and_cuts(inspect, tmp_path):
    _, out, _ = inspect("cora", "--clients", "7", "--json")
    found = json.loads(out)
    quick = ["--rounds", "1", "--hidden", "2", "--resplits", "2", "--seeds", "1"]
    options = ["--clients", "7", "--methods", "fed", *quick, "--out", "r", "--quiet"]
    status, _, _ = inspect("cora", *options, command="run")
    assert status == 0
    results = pl.read_csv(tmp_path / "r/results.csv")
    assert set(results["n_calibration"]) == {found["n_calibration"]}
    cut = json.loads((tmp_path / "r/run.json").read_text())["cut_edges"]
    assert cut == [sum(client["cut_edges"] for client in found["clients"])]


def test_a_client_too_small_to_split_is_shown_then_refused(inspect, tmp_path):
    write(tmp_path / "own", {"big": 60, "tiny": 2})
    status, out, err = inspect("own", "--partition", "given")
    assert status == 1
    assert "tiny" in out
    assert "calibration nodes at" not in out
    assert err.startswith("fedcover: Client tiny has too few nodes, 2,")
    assert err.count("\n") == 1


def test_many_clients_are_cut_down_to_the_smallest(inspect):
    _, out, _ = inspect("cora", "--clients", "40", "--partition", "random")
    words = " ".join(out.split())
    assert "40 clients, partition random; the 30 smallest" in words
    _, out, _ = inspect("cora", "--clients", "40", "--partition", "random", "--json")
    assert len(json.loads(out)["clients"]) == 40


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("cora", "--alpha", "1.5"), 2, "alphas has 1.5; every alpha must lie"),
        (("cora", "--alpha", "x"), 2, "Invalid value for '--alpha': 'x' is not a valid float"),
        (("cora", "--clients", "0"), 2, "clients is 0; it must be a whole number"),
        (("cora", "--partition", "halves"), 2, "partition"),
        (("cora", "--partition", "given"), 1, "cora has no client column"),
        (("nowhere",), 1, "nowhere is neither a path that exists nor a known name"),
    ],
)
def test_what_is_wrong_is_one_sentence(inspect, arguments, status, sentence):
    code, out, err = inspect(*arguments)
    assert (code, out) == (status, "")
    assert err.startswith(f"fedcover: {sentence}")
    assert err.count("\n") == 1


def test_a_name_with_markup_is_printed_as_it_stands(inspect, tmp_path):
    write(tmp_path / "own:smile:", {"[bold]a": 40, "b": 40})
    _, out, _ = inspect("own:smile:", "--partition", "given")
    assert "own:smile:" in out
    assert "[bold]a" in out


def test_one_client_no_edges_and_many_labels_are_shown_plainly(inspect, tmp_path):
    write(tmp_path / "own", {"all": 90})
    (tmp_path / "own/edges.csv").write_text("source,target\n")
    nodes = pl.read_csv(tmp_path / "own/nodes.csv")
    nodes = nodes.with_columns(label=pl.int_range(90) % 30)
    nodes.write_csv(tmp_path / "own/nodes.csv")
    _, out, _ = inspect("own", "--partition", "given")
    words = " ".join(out.split())
    assert "1 client, partition given" in words
    assert "homophily – 1 client" in words
    assert "labels 30: 0 3, 1 3," in words
    assert "19 3, … (30 in all)" in words
