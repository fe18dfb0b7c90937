"""What ``fedcover run`` does: files, streams, exit status."""

import io
import json
import sys

import numpy as np
import polars as pl
import pytest

from fedcover import cli
from fedcover.config import BEST

QUICK = ["--clients", "2", "--seeds", "2", "--rounds", "3", "--hidden", "4", "--resplits", "5"]
FILES = [
    "edges.parquet",
    "groups.csv",
    "ledger.parquet",
    "model",
    "nodes.parquet",
    "report.html",
    "results.csv",
    "run.json",
    "scores.parquet",
    "sets.parquet",
]


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_run_of_a_table_with_gaps_words_and_unknown_labels(fedcover, here, write_graph):
    labels = [None if i < 3 else ("cat" if i % 2 else "dog") for i in range(24)]
    ages = [None if i == 7 else float(i) for i in range(24)]
    wards = ["north", "south", "west"] * 8
    write_graph(here / "gaps", label=labels, age=ages, ward=wards)
    status, _, err = fedcover("run", "gaps", *QUICK)
    assert status == 1
    assert "gaps/nodes.csv, line 9, column 'age': is empty; fill it in, or have missing" in err
    for option, scaled in (("--standardise", True), ("--no-standardise", False)):
        status, _, err = fedcover(
            "run", "gaps", *QUICK, "--missing", "impute", option, "--methods", "fed"
        )
        assert status == 0
        assert "fedcover: note: 3 of 24 nodes have no label: each gets a set" in err
        info = json.loads((here / "runs/gaps-2/run.json").read_text())
        assert info["config"]["standardise"] is scaled
        sent = info["bytes_by_kind"]["fed"][0]["statistics"]
        # Two clients; with scaling three columns of numbers, else the one that has a gap. Up go a
        # count and two sums of fourteen words, down which column it is.
        columns = 2 * (3 if scaled else 1)
        assert sent == {"up": columns * (8 + 2 * 14 * 8), "down": columns * 8}


def test_run_writes_the_folder_and_shows_a_table(fedcover, here):
    status, out, err = fedcover("run", "own", *QUICK, "--out", "deep/result")
    assert status == 0
    assert listing(here / "deep/result") == FILES
    assert listing(here / "deep") == ["result"]
    info = json.loads((here / "deep/result/run.json").read_text())
    share = np.mean(info["cut_edges"]) / info["graph"]["edges"]
    heading = f"own, 2 clients by metis, {share:.1%} of edges between clients, gcn:"
    assert heading in " ".join(out.split())
    for word in ("lac", "exact", "loc", "fed", BEST, "central", "0.95", "0.9", "0.8"):
        assert word in out.split()
    assert "mean over seeds and 5 calibration/test re-splits" in out
    assert (
        "deep/result: report.html, results.csv, groups.csv, sets.parquet, ledger.parquet, run.json"
        in out
    )
    mixed = [
        "train fed+prox+prior: 3 of 3",
        "tuned fed+prox+prior: 30 of 30",
        "local fed: 40 of 40",
    ]
    stages = ["partition: 2 of 2"]
    for method in ("loc", "fed", BEST, "central"):
        stages += ["choice central: 3 of 3"] * (method == "central")  # of its weight decay
        stages += mixed if method == BEST else [f"train {method}: 3 of 3"]
        stages.append(f"calibrate {method}: 2 of 2")
    assert [line for line in err.splitlines() if "note" not in line] == stages


def test_the_table_says_what_results_csv_says(fedcover, here):
    options = ["--methods", "fed", "--scores", "lac", "--alphas", "0.3"]
    _, out, _ = fedcover("run", "own", *QUICK, *options, "--out", "r")
    results = pl.read_csv(here / "r/results.csv")
    (row,) = (line.split() for line in out.splitlines() if " fed " in line)
    size, spread = results["set_size"].mean(), results["set_size"].std()
    coverage, split = results["coverage"].mean(), results["coverage_split"].mean()
    assert row[:3] == ["lac", "exact", "fed"]
    assert row[3:6] == [f"{size:.2f}", "±", f"{spread:.2f}"]
    assert row[6].rstrip("▼") == f"{coverage:.3f}"
    assert row[7].rstrip("▼") == f"{split:.3f}"
    assert row[8] == f"{results['empty_rate'].mean():.2f}"
    assert row[9] == f"{results['accuracy'].mean():.3f}"


def test_notes_follow_on_stderr(fedcover):
    status, _, err = fedcover("run", "own", *QUICK, "--alphas", "0.01", "--methods", "loc")
    assert status == 0
    (note,) = (line for line in err.splitlines() if "note" in line and "alpha" in line)
    assert note.startswith("fedcover: note: seed 0, 1, quantile exact: alpha = 0.01 asks for rank")


def test_quiet_prints_nothing_but_the_runs_notes(fedcover, here):
    status, out, err = fedcover("run", "own", *QUICK, "--alphas", "0.01", "--quiet")
    assert (status, out) == (0, "")
    assert listing(here / "runs/own-2") == FILES
    notes = json.loads((here / "runs/own-2/run.json").read_text())["notes"]
    assert notes
    assert err.splitlines() == [f"fedcover: note: {note}" for note in notes]


def test_the_same_command_gives_the_same_bytes_but_for_the_seconds(fedcover, here):
    def results(out):
        assert (
            fedcover("run", "own", *QUICK, "--quantiles", "exact,average,tdigest", "--out", out)[0]
            == 0
        )
        lines = (here / out / "results.csv").read_bytes().splitlines(keepends=True)
        assert lines[0].endswith(b",train_seconds\n")
        return [line.rpartition(b",")[0] for line in lines]

    first, second = results("first"), results("second")
    assert len(first) == 1 + 4 * 1 * 3 * 3 * 2
    assert first == second


def test_every_option_reaches_the_run(fedcover, here):
    options = (
        "--clients 3 --methods fed,loc --model sage --scores aps-det,lac --quantiles average "
        "--alphas 0.25,0.5 --seeds 1 --first-seed 4 --rounds 2 --local-epochs 2 --batch-size 3 "
        "--hidden 5 --partition random --resplits 6 --no-empty-sets --threads 1"
    )
    assert fedcover("run", "own", *options.split(), "--out", "r")[0] == 0
    config = json.loads((here / "r/run.json").read_text())["config"]
    expected = {
        "clients": 3,
        "methods": ["fed", "loc"],
        "model": "sage",
        "scores": ["aps-det", "lac"],
        "quantiles": ["average"],
        "alphas": [0.25, 0.5],
        "seeds": 1,
        "first_seed": 4,
        "rounds": 2,
        "local_epochs": 2,
        "batch_size": 3,
        "hidden": 5,
        "partition": "random",
        "resplits": 6,
        "empty_sets": False,
    }
    assert {name: config[name] for name in expected} == expected


def test_clients_shares_reach_the_run(fedcover, here):
    options = ["--clients", "3", "--quantiles", "exact,pooled", "--client-shares", "5,3,2"]
    status, _, err = fedcover("run", "own", *QUICK, *options, "--methods", "fed", "--out", "r")
    assert status == 0
    config = json.loads((here / "r/run.json").read_text())["config"]
    assert config["client_shares"] == [0.5, 0.3, 0.2]
    assert set(pl.read_csv(here / "r/results.csv")["quantile"]) == {"exact", "pooled"}
    # Weighed scores have no rank.
    assert "quantile exact: alpha = 0.1 asks for more than the 9 calibration scores" in err
    assert "quantile pooled: alpha = 0.05 asks for rank 10 of 9 calibration scores" in err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--client-shares", "1,2,3"],
            "client_shares has length 3; it must hold one number for each of the 2 clients.",
        ),
        (
            ["--client-shares", "0.5,half"],
            "client_shares has 'half'; every share must be a number of 0 or more.",
        ),
        (
            ["--client-shares", "1,2", "--quantiles", "theorem1"],
            "client_shares is set, which needs 'exact' among the quantiles.",
        ),
    ],
)
def test_wrong_shares_are_wrong_usage(fedcover, here, options, sentence):
    assert fedcover("run", "own", *QUICK, *options) == (2, "", f"fedcover: {sentence}\n")
    assert not (here / "runs").exists()


RECIPES = ["--methods", "fed,fed+mix+prior", "--scores", "lac,dlac,slac"]


def test_a_recipe_and_graph_scores_run_and_are_shown(fedcover, here):
    status, out, err = fedcover("run", "own", *QUICK, *RECIPES, "--alphas", "0.3", "--out", "r")
    assert status == 0
    results = pl.read_csv(here / "r/results.csv")
    assert results["method"].unique(maintain_order=True).to_list() == ["fed", "fed+prior+mix"]
    assert results["score"].unique(maintain_order=True).to_list() == ["lac", "dlac", "slac"]
    assert len(results) == 2 * 3 * 2
    rows = [line.split()[:3] for line in out.splitlines() if " exact " in line]
    methods = ("fed", "fed+prior+mix")
    assert rows == [[s, "exact", method] for s in ("lac", "dlac", "slac") for method in methods]
    stages = [line for line in err.splitlines() if "note" not in line]
    assert stages == [
        "partition: 2 of 2",
        "train fed: 3 of 3",
        "calibrate fed: 2 of 2",
        "train fed+prior: 3 of 3",
        "tuned fed+prior: 30 of 30",
        "local fed: 40 of 40",
        "calibrate fed+prior+mix: 2 of 2",
    ]
    info = json.loads((here / "r/run.json").read_text())
    assert info["config"]["methods"] == ["fed", "fed+prior+mix"]
    chosen = info["chosen_on_validation"]["fed+prior+mix"]
    assert [len(weights) for weights in chosen["mixture"]] == [2, 2]  # clients, of each seed
    assert set(chosen["slac"][0]) == {"neighbours", "similar"}
    kinds = set(pl.read_parquet(here / "r/ledger.parquet").filter(method="fed+prior+mix")["kind"])
    assert {
        "losses, tuned",
        "losses, local",
        "mixture",
        "weights of dlac",
        "weights of slac",
    } <= kinds


def test_the_same_recipe_gives_the_same_bytes_but_for_the_seconds(fedcover, here):
    for out in ("first", "second"):
        assert fedcover("run", "own", *QUICK, *RECIPES, "--out", out)[0] == 0
    first, second = (
        {
            str(path.relative_to(here / out)): path.read_bytes()
            for path in sorted((here / out).rglob("*"))
            if path.is_file()
        }
        for out in ("first", "second")
    )
    assert first.keys() == second.keys()
    assert "model/fed/arrays.safetensors" in first
    for name in first.keys() - {"run.json", "report.html"}:
        one, other = first[name], second[name]
        if name == "results.csv":
            one, other = (
                [line.rpartition(b",")[0] for line in content.splitlines()]
                for content in (one, other)
            )
        assert one == other, name


def test_the_paper_preset_says_that_it_has_no_guarantee(fedcover, here):
    status, out, _ = fedcover("run", "own", *QUICK, "--preset", "paper", "--out", "r")
    assert status == 0
    assert "Only the quantiles 'exact' and 'theorem1' have a guarantee." in out
    assert set(pl.read_csv(here / "r/results.csv")["score"]) == {"aps-det"}


def test_gen_chooses_on_validation_nodes_and_its_prototypes_can_be_private(
    fedcover, here, write_graph
):
    write_graph(here / "large", nodes=120)
    options = [
        *QUICK,
        "--methods",
        "fed,gen,restored",
        "--prototypes",
        "1,2",
        "--shares",
        "0.1,1.0",
    ]
    status, out, err = fedcover("run", "large", *options, "--epsilon", "25", "--out", "r")
    assert status == 0
    assert "of the distance from fed to restored, gen closes" in out
    assert "the prototypes are covered by it" in " ".join(out.split())
    assert "the noise on the VAE's" in err
    info = json.loads((here / "r/run.json").read_text())
    assert info["privacy"]["covered"] is True
    assert 24 < info["privacy"]["epsilon"] <= 25
    assert info["privacy"]["delta"] == 1e-5
    chosen = info["chosen_on_validation"]["gen"]
    assert len(chosen["grid"]) == 2  # seeds
    cells = [(cell["prototypes"], cell["share"]) for cell in chosen["grid"][0]]
    assert cells == [(1, 0.1), (1, 1.0), (2, 0.1), (2, 1.0)]
    losses = [cell["valid_loss"] for cell in chosen["grid"][0]]
    assert losses[0] == losses[1]  # one prototype has one link at either share: trained once
    assert losses[2] != losses[3]
    assert set(info["bytes_by_kind"]) == {"fed", "gen"}
    assert {"prototypes", "VGAE weights", "weights"} <= set(info["bytes_by_kind"]["gen"][0])


def test_a_client_too_small_for_epsilon_is_named(fedcover, here):
    status, _, err = fedcover("run", "own", *QUICK, "--methods", "gen", "--epsilon", "0.1")
    assert status == 1
    assert "Client 0 has " in err
    assert "too few for epsilon 0.1" in err
    assert not (here / "runs").exists()


def test_clients_from_the_graphs_own_column(fedcover, here, write_graph):
    write_graph(here / "banks", client=["p", "q", "r"] * 8)
    options = ["--partition", "given", "--seeds", "1", "--rounds", "2", "--alphas", "0.3"]
    assert fedcover("run", "banks", *options)[0] == 0
    assert set(pl.read_parquet(here / "runs/banks-given/sets.parquet")["client"]) == {"p", "q", "r"}


def test_an_earlier_run_is_replaced_and_this_is_said(fedcover, here):
    notes = []
    for hidden, *quiet in (("3",), ("4",), ("5", "--quiet")):
        options = ["--hidden", hidden, "--alphas", "0.3", "--methods", "loc", "--out", "r", *quiet]
        status, _, err = fedcover("run", "own", *QUICK, *options)
        assert status == 0
        notes.append([line for line in err.splitlines() if "earlier" in line])
    sentence = "fedcover: note: r held an earlier run, which this one replaces."
    assert notes == [[], [sentence], []]
    assert json.loads((here / "r/run.json").read_text())["config"]["hidden"] == 5
    assert listing(here) == ["own", "r"]


def test_a_run_of_the_default_name_is_said_to_be_replaced_too(fedcover):
    options = ["--alphas", "0.3", "--methods", "loc"]
    errors = [fedcover("run", "own", *QUICK, *options)[2] for _ in range(2)]
    assert "earlier" not in errors[0]
    assert "fedcover: note: runs/own-2 held an earlier run, which this one" in errors[1]


def test_a_narrow_encoding_loses_signs_but_not_the_run(here, monkeypatch, write_graph):
    write_graph(here / "größe")
    options = ["--alphas", "0.3", "--methods", "loc", "--out", "r"]
    for name, status, stream, shown in (
        ("größe", 0, "stdout", "gr??e, 2 clients"),
        ("maß", 1, "stderr", "fedcover: ma? is neither a path"),
    ):
        for each in ("stdout", "stderr"):
            monkeypatch.setattr(sys, each, io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        monkeypatch.setattr(sys, "argv", ["fedcover", "run", name, *QUICK, *options])
        with pytest.raises(SystemExit) as end:
            cli.main()
        written = getattr(sys, stream)
        written.flush()
        assert end.value.code == status
        assert shown in written.buffer.getvalue().decode("ascii")
    assert listing(here / "r") == FILES
