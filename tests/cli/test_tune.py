"""``fedcover tune`` and ``run --config``: files, streams, exit status, one sentence each."""

import json

import polars as pl
import pytest

from fedcover.config import configured, read_settings

QUICK = ["--clients", "2", "--rounds", "4", "--candidates", "3", "--seeds", "2", "--minutes", "0"]


@pytest.fixture
def fedcover(toy_sites, tmp_path, monkeypatch, calling):
    """``fedcover("tune", "own")`` gives exit status, stdout and stderr; ``own`` has a split."""
    toy_sites(tmp_path / "sites", ["own"])
    (tmp_path / "sites" / "own").rename(tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDCOVER_DATA", raising=False)
    return calling


def test_from_a_graph_to_a_choice_to_a_run(fedcover, tmp_path):
    status, out, err = fedcover("tune", "own", *QUICK)
    assert status == 0
    rungs = [line for line in err.splitlines() if line.startswith("rung")]
    assert rungs[0] == "rung 1 of 3: 3 of 3"
    assert rungs[-1].startswith("rung 3 of 3: ")
    tried = pl.read_csv("best.tried.csv")
    assert sorted(tried["candidate"]) == [0, 1, 2]
    assert "valid loss" in out
    assert out.splitlines()[-2].startswith("best.toml, best.tried.csv (")
    assert out.splitlines()[-1] == "Next: fedcover run own --config best.toml"
    chosen = configured("best.toml")
    best = tried.row(0, named=True)
    assert (chosen.methods, chosen.hidden, chosen.lr) == (
        (best["method"],),
        best["hidden"],
        best["lr"],
    )
    recipes = {"fed+prox+prior+mix", "gen+prox+prior+mix"}
    assert set(tried["method"]) == recipes
    assert f"Chosen: method {best['method']}, model" in out

    status, _, _ = fedcover("run", "own", "--config", "best.toml", "--seeds", "2", "--quiet")
    assert status == 0
    info = json.loads((tmp_path / "runs" / "own-2" / "run.json").read_text())
    assert info["config"]["hidden"] == chosen.hidden
    assert info["config"]["seeds"] == 2  # the option wins over the file
    assert set(pl.read_csv("runs/own-2/results.csv")["score"]) == set(chosen.scores)


def test_a_table_with_gens_settings_shows_every_digit(fedcover):
    gen = ("--methods", "gen", "--prototypes", "2", "--shares", "0.04,0.08", "--seeds", "2")
    status, out, _ = fedcover("tune", "own", *QUICK, *gen)
    assert status == 0
    assert "local epochs   prototypes   share   rungs" in out
    assert "…" not in out


def test_the_same_command_gives_the_same_file(fedcover, tmp_path):
    assert fedcover("tune", "own", *QUICK, "--quiet", "--out", "a/x.toml")[0] == 0
    assert fedcover("tune", "own", *QUICK, "--quiet", "--out", "b/x.toml")[:2] == (0, "")
    assert (tmp_path / "a" / "x.toml").read_text() == (tmp_path / "b" / "x.toml").read_text()
    one, other = (pl.read_csv(f"{folder}/x.tried.csv").drop("seconds") for folder in "ab")
    assert one.equals(other)


def test_tune_starts_from_a_file_and_an_option_wins(fedcover, tmp_path):
    (tmp_path / "start.toml").write_text('methods = "fed+prior"\nhidden = 24\nrounds = 50\n')
    status, _, _ = fedcover("tune", "own", *QUICK, "--config", "start.toml", "--quiet")
    assert status == 0
    tried = pl.read_csv("best.tried.csv")
    assert tried.filter(candidate=0)["hidden"].to_list() == [24]
    assert tried["rounds"].max() == 4
    assert configured("best.toml").methods == ("fed+prior",)


def test_print_config_prints_what_config_reads(fedcover, tmp_path):
    status, out, err = fedcover("run", "none-such", "--print-config", "--hidden", "9")
    assert (status, err) == (0, "")
    (tmp_path / "all.toml").write_text(out)
    assert configured("all.toml") == configured(hidden=9)
    again = fedcover("run", "none-such", "--config", "all.toml", "--print-config")
    assert again == (0, out, "")
    assert read_settings("all.toml")["clients"] == 10


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["run", "own", "--config", "none.toml"], 1, "none.toml: No such file or directory."),
        (["run", "own", "--config", "bad.toml"], 1, "bad.toml: there is no setting called 'hiden'"),
        (["tune", "own", "--config", "bad.toml"], 1, "bad.toml: there is no setting called "),
        (["tune", "own", "--out", "best.csv"], 2, "--out is 'best.csv'; it must end in .toml."),
        (["tune", "own", "--out", "dir.toml"], 2, "dir.toml is a folder; --out must name a file."),
        (
            ["tune", "own", "--minutes", "-1"],
            2,
            "--minutes is -1; it must be a positive number, or 0",
        ),
        (["tune", "own", "--candidates", "0"], 2, "candidates is 0; it must be a whole number"),
        (["tune", "own", "--alpha", "2"], 2, "alpha is 2; it must lie strictly between 0 and 1."),
        (["tune", "own", "--methods", "fad"], 2, "methods has 'fad'; it must be one of "),
        (
            ["tune", "own", "--clients", "2", "--minutes", "0.00001"],
            2,
            "minutes is 1e-05, too short to try a single candidate for 12 rounds; give more time",
        ),
        (["tune", "own", "--clients", "20"], 1, "Client "),
    ],
)
def test_what_is_wrong_is_one_sentence_and_writes_nothing(
    fedcover, tmp_path, arguments, status, sentence
):
    (tmp_path / "bad.toml").write_text("hiden = 3")
    (tmp_path / "dir.toml").mkdir()
    before = sorted(tmp_path.rglob("*"))
    got, out, err = fedcover(*arguments)
    assert (got, out) == (status, "")
    assert err.splitlines()[-1].startswith(f"fedcover: {sentence}")
    assert sorted(tmp_path.rglob("*")) == before
