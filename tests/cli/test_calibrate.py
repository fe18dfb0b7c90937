"""``fedcover run --calibrate`` and ``--group``: files, streams, exit status."""

import json

import numpy as np
import polars as pl
import pytest

QUICK = ["--clients", "2", "--seeds", "1", "--rounds", "2", "--hidden", "4", "--resplits", "5"]
QUICK += ["--methods", "fed", "--alphas", "0.3"]


@pytest.fixture
def fedcover(tmp_path, monkeypatch, calling):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    n = 60
    nodes = {
        "id": [f"n{i}" for i in range(n)],
        "label": ["cat" if i % 2 else "dog" for i in range(n)],
        "ward": ["north" if i % 3 else "south" for i in range(n)],
        "a": rng.normal(size=n).round(3) + np.arange(n) % 2,
    }
    (tmp_path / "own").mkdir()
    pl.DataFrame(nodes).write_csv("own/nodes.csv")
    ring = {"source": nodes["id"], "target": nodes["id"][2:] + nodes["id"][:2]}
    pl.DataFrame(ring).write_csv("own/edges.csv")
    return calling


def test_a_run_by_group(fedcover, tmp_path):
    status, out, err = fedcover(
        "run", "own", *QUICK, "--calibrate", "group", "--group", "ward", "--out", "r"
    )
    assert status == 0, err
    assert "Calibrated by group: each has its own threshold" in out
    assert "groups.csv, thresholds.csv, sets.parquet" in out
    table = pl.read_csv(tmp_path / "r/thresholds.csv")
    assert table["group"].to_list() == ["north", "south"]
    groups = pl.read_csv(tmp_path / "r/groups.csv").filter(kind="group")
    assert groups["group"].to_list() == ["north", "south"]
    info = json.loads((tmp_path / "r/run.json").read_text())
    assert info["config"]["calibrate"] == "group"
    assert info["graph"]["group_names"] == ["north", "south"]
    assert info["graph"]["features"] == 1


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["--calibrate", "label"], 2, "calibrate is 'label'; it must be one of pooled, client,"),
        (["--calibrate", "class", "--quantiles", "tdigest"], 2, "quantiles has 'tdigest', which"),
        (["--calibrate", "group"], 2, "own has no groups, which calibrate 'group' needs"),
        (["--group", "label"], 2, "group is 'label', which says something else about a node"),
        (["--group", "unit"], 1, "own/nodes.csv has no column 'unit'"),
    ],
)
def test_refusals_are_one_sentence(fedcover, tmp_path, arguments, status, sentence):
    code, out, err = fedcover("run", "own", *QUICK, *arguments, "--out", "r")
    assert (code, out) == (status, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_a_named_graph_has_no_columns(fedcover):
    code, _, err = fedcover("run", "cora", *QUICK, "--group", "ward", "--out", "r")
    assert code == 2
    assert "group is 'ward', but cora has no columns" in err
    code, _, err = fedcover("run", "cora", *QUICK, "--calibrate", "group", "--out", "r")
    assert code == 2
    assert "cora has no groups, which calibrate 'group' needs; --group names a column" in err
