"""The federation's commands that need no network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from flwr.common.config import parse_config_args

from fedcover.carriers.network.flower import node
from fedcover.carriers.network.journal import FILE, record
from fedcover.carriers.network.messages import Place
from fedcover.cli import main
from fedcover.graphs import load
from fedcover.graphs import partition as divide


@pytest.fixture
def fedcover(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["fedcover", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        output = capsys.readouterr()
        return int(left.value.code or 0), output.err if left.value.code else output.out

    return call


@pytest.fixture
def party(tmp_path: Path) -> Path:
    folder = tmp_path / "clinic"
    folder.mkdir()
    nodes = {"id": range(6), "label": list("ababab"), "dose": np.arange(6) / 2}
    pl.DataFrame(nodes).write_csv(folder / "nodes.csv")
    pl.DataFrame({"source": [0, 1], "target": [1, 2]}).write_csv(folder / "edges.csv")
    return folder


def test_init_makes_a_schema_and_the_next_party_is_checked_against_it(
    fedcover, party: Path
) -> None:
    status, text = fedcover("site", "init", party)
    assert status == 0
    assert "6 nodes, 2 edges, 1 features, 2 labels" in text
    schema = party / "schema.json"
    assert json.loads(schema.read_text())["features"] == [["dose", "number"]]
    assert fedcover("site", "init", party, "--schema", schema)[0] == 0
    nodes = pl.read_csv(party / "nodes.csv").with_columns(label=pl.lit("c"))
    nodes.write_csv(party / "nodes.csv")
    status, text = fedcover("site", "init", party, "--schema", schema)
    assert status == 1
    assert "line 2, column 'label': 'c' is not among" in text
    assert "Traceback" not in text


def test_init_does_not_replace_what_was_agreed(fedcover, party: Path) -> None:
    fedcover("site", "init", party)
    nodes = pl.read_csv(party / "nodes.csv").rename({"dose": "mass"})
    nodes.write_csv(party / "nodes.csv")
    status, text = fedcover("site", "init", party)
    assert status == 2
    assert "another schema" in text


def test_a_graph_is_cut_into_folders_and_the_cut_is_told(
    fedcover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    skew = ("--partition", "label-skew", "--beta", "0.2")
    status, text = fedcover("partition", "cora", *skew, "--out", "sites")
    assert status == 0
    kept = sum(len(pl.read_parquet(file)) for file in Path("sites").glob("*/edges.parquet"))
    lost = 10138 // 2 - kept
    told = f"{lost} edges between them, {lost / 5069:.1%} of all, are in none of the folders"
    assert told in text
    sizes = [len(pl.read_parquet(file)) for file in sorted(Path("sites").glob("*/nodes.parquet"))]
    expected = divide(load("cora"), 3, "label-skew", beta=0.2)
    assert sizes == np.bincount(expected.client).tolist()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("site", "init", "nowhere"), "not a folder"),
        (("site", "run", "nowhere", "--insecure"), "neither nodes.csv"),
        (("site", "run", "nowhere"), "--root-certificates"),
        (("site", "run", "nowhere", "--root-certificates", "no.crt"), "no.crt"),
        (("site", "run", "nowhere", "--insecure", "--least-far-ends", "0"), "least_far_ends is 0"),
        (("site", "run", "nowhere", "--insecure", "--least-far-ends", "x"), "not a whole number"),
        (("federation", "try", "cora", "--match", "person"), "match is 'person', but a graph that"),
        (("federation", "try", "cora", "--matching", "open"), "No such option '--matching'"),
        (("ledger", "show", "nowhere"), "nowhere"),
        (("ledger", "show", ".", "--direction", "left"), "up or down"),
        (("partition", "cora", "--clients", "0"), "clients is 0"),
        (("partition", "cora", "--beta", "2"), "beta is 2, which needs partition 'label-skew'."),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    fedcover, arguments: tuple, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, text = fedcover(*arguments)
    assert status in (1, 2)
    assert words in text
    assert len(text.strip().splitlines()) == 1


@pytest.mark.parametrize(("given", "told"), [((), ""), (("--least-far-ends", "2"), "2")])
def test_a_site_tells_its_node_its_floor_for_far_ends(
    fedcover, party: Path, given: tuple, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(
        node, "run_node", lambda arguments, _port, _threads: calls.append(arguments)
    )
    assert fedcover("site", "run", party, "--insecure", "--name", "ada", *given)[0] == 0
    ((*_, flag, settings),) = calls
    assert flag == "--node-config"
    read = parse_config_args([settings])  # as Flower's node does
    assert (read["name"], str(read.get("least-far-ends", ""))) == ("ada", told)
    assert Path(str(read["site"])) == party.resolve()


def test_a_ledger_is_summed_up(fedcover, tmp_path: Path) -> None:
    file = tmp_path / FILE
    for round_ in range(3):
        place = Place(0, "fed/shared", "train", round_)
        record(file, "job", "ada", "up", [(place, {"first": np.zeros((2, 4))})])
        record(file, "job", "ada", "down", [(place, {"first": np.zeros(2)})])
    status, text = fedcover("ledger", "show", tmp_path)
    assert status == 0
    assert "left the site: 192 bytes" in text
    assert "reached the site: 48 bytes" in text
    assert "2×4" in text
    status, text = fedcover("ledger", "show", tmp_path / FILE, "--direction", "up")
    assert "down" not in text
    assert "reached the site" not in text


def test_a_ledger_is_checked(fedcover, tmp_path: Path) -> None:
    file = tmp_path / FILE
    for round_ in range(3):
        place = Place(0, "fed/shared", "train", round_)
        record(file, "job", "ada", "up", [(place, {"first": np.zeros(2)})])
    status, text = fedcover("ledger", "verify", tmp_path)
    assert (status, text.count("\n")) == (0, 1)
    assert "3 lines, none changed or taken out, but --beside alone shows whether" in text
    assert "and its end matches" in fedcover("ledger", "verify", file, "--beside", file)[1]
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0] + lines[2])
    status, text = fedcover("ledger", "verify", tmp_path)
    assert status == 1
    assert f"{FILE}, line 2: it was changed, or a line before it was taken out." in text


def test_keys_are_not_written_over(fedcover, tmp_path: Path) -> None:
    arguments = ("federation", "keys", tmp_path / "keys", "--hosts", "localhost", "--sites", "a,b")
    assert fedcover(*arguments)[0] == 0
    assert {"ca.crt", "server.pem", "server.key", "a", "a.pub", "b", "b.pub"} == {
        path.name for path in (tmp_path / "keys").iterdir()
    }
    status, text = fedcover(*arguments)
    assert status == 2
    assert "already holds" in text


def test_the_app_s_folder_is_printed(fedcover) -> None:
    status, text = fedcover("federation", "app")
    assert status == 0
    assert (Path(text.strip()) / "pyproject.toml").is_file()
