"""The command line's contract: files, streams, exit status, one sentence for what is wrong."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from fedcover import __version__, cli
from fedcover.experiment.recipes import BEST

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


def nodes_csv(nodes=24, **columns):
    """A nodes table: two labels, two features; further columns by name, values by node."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(nodes, 2)).round(3)
    table = {
        "id": [f"n{i}" for i in range(nodes)],
        "label": ["cat" if i % 2 else "dog" for i in range(nodes)],
        "a": x[:, 0],
        "b": x[:, 1] + np.arange(nodes) % 2,
    }
    chosen = {name: values for name, values in (table | columns).items() if values is not None}
    return pl.DataFrame(chosen).write_csv()


def edges_csv(nodes=24, extra=""):
    ring = "".join(f"n{i},n{(i + step) % nodes}\n" for i in range(nodes) for step in (1, 2))
    return f"source,target\n{ring}{extra}"


def own_graph(folder, nodes=None, edges=None):
    folder.mkdir()
    (folder / "nodes.csv").write_text(nodes_csv() if nodes is None else nodes)
    (folder / "edges.csv").write_text(edges_csv() if edges is None else edges)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder without network, with the graph ``own`` in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOVER_DATA", raising=False)

    def offline(*_, **__):
        raise OSError("Network is unreachable")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    own_graph(tmp_path / "own")
    return tmp_path


@pytest.fixture
def fedcover(here, calling):
    """``fedcover("run", "cora")`` gives exit status, stdout and stderr."""
    return calling


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


# What works


def test_run_of_a_table_with_gaps_words_and_unknown_labels(fedcover, here):
    labels = [None if i < 3 else ("cat" if i % 2 else "dog") for i in range(24)]
    ages = [None if i == 7 else float(i) for i in range(24)]
    nodes = nodes_csv(label=labels, age=ages, ward=["north", "south", "west"] * 8)
    own_graph(here / "gaps", nodes)
    status, _, err = fedcover("run", "gaps", *QUICK)
    assert status == 1
    assert "gaps/nodes.csv, line 9, column 'age': is empty; fill it in, or have missing" in err
    for option, scaled in (("--standardise", True), ("--no-standardise", False)):
        status, _, err = fedcover(
            "run", "gaps", *QUICK, "--missing", "impute", option, "--methods", "fed"
        )
        assert status == 0
        assert "fedcover: note: 3 of 24 nodes have no label: neighbours to others" in err
        info = json.loads((here / "runs/gaps-2/run.json").read_text())
        assert info["config"]["standardise"] is scaled
        sent = info["bytes_by_kind"]["fed"][0]["feature statistics"]
        # Two clients; with scaling three columns of numbers, else only the one that has a gap.
        assert sent == ({"up": 144, "down": 48} if scaled else {"up": 48, "down": 16})


def test_run_writes_the_folder_and_shows_a_table(fedcover, here):
    status, out, err = fedcover("run", "own", *QUICK, "--out", "deep/result")
    assert status == 0
    assert listing(here / "deep/result") == FILES
    assert listing(here / "deep") == ["result"]
    assert "own, 2 clients, gcn" in out
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
        stages += mixed if method == BEST else [f"train {method}: 3 of 3"]
        stages.append(f"calibrate {method}: 2 of 2")
    assert [line for line in err.splitlines() if "note" not in line] == stages


def test_the_table_says_what_results_csv_says(fedcover, here):
    options = ["--methods", "fed", "--scores", "lac", "--alphas", "0.3"]
    _, out, _ = fedcover("run", "own", *QUICK, *options, "--out", "r")
    results = pl.read_csv(here / "r/results.csv")
    (row,) = (line.split() for line in out.splitlines() if " fed " in line)
    size, spread = results["set_size"].mean(), results["set_size"].std()
    coverage, accuracy = results["coverage"].mean(), results["accuracy"].mean()
    assert row[:3] == ["lac", "exact", "fed"]
    assert row[3:6] == [f"{size:.2f}", "±", f"{spread:.2f}"]
    assert row[6].rstrip("▼") == f"{coverage:.3f}"
    assert row[7] == f"{accuracy:.3f}"


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


def test_the_mixture_reaches_the_run(fedcover, here):
    options = ["--clients", "3", "--quantiles", "mixture,pooled", "--mixture", "5,3,2"]
    status, _, err = fedcover("run", "own", *QUICK, *options, "--methods", "fed", "--out", "r")
    assert status == 0
    assert json.loads((here / "r/run.json").read_text())["config"]["mixture"] == [0.5, 0.3, 0.2]
    assert set(pl.read_csv(here / "r/results.csv")["quantile"]) == {"mixture", "pooled"}
    assert "the guarantee is for the clients' shares in --mixture" in err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--quantiles", "mixture", "--mixture", "1,2,3"],
            "mixture has length 3; it must hold one number for each of the 2 clients.",
        ),
        (
            ["--quantiles", "mixture", "--mixture", "0.5,half"],
            "--mixture is '0.5,half'; give numbers separated by single commas.",
        ),
        (["--mixture", "1,2"], "mixture is set, which needs 'mixture' among the quantiles."),
    ],
)
def test_a_wrong_mixture_is_wrong_usage(fedcover, here, options, sentence):
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
    assert {"mixture losses", "mean mixture losses", "weights of dlac", "weights of slac"} <= kinds


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
    assert "Only the quantiles 'exact' and 'mixture' have a guarantee." in out
    assert set(pl.read_csv(here / "r/results.csv")["score"]) == {"aps-det"}


def test_gen_chooses_on_validation_nodes_and_its_prototypes_can_be_private(fedcover, here):
    own_graph(here / "large", nodes_csv(120))
    options = [
        *QUICK,
        "--methods",
        "fed,gen,restored",
        "--prototypes",
        "1,2",
        "--shares",
        "0.1,0.5",
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
    assert [cell["prototypes"] for cell in chosen["grid"][0]] == [1, 1, 2, 2]
    assert set(info["bytes_by_kind"]) == {"fed", "gen"}
    assert {"prototypes", "VGAE weights", "weights"} <= set(info["bytes_by_kind"]["gen"][0])


def test_a_client_too_small_for_epsilon_is_named(fedcover, here):
    status, _, err = fedcover("run", "own", *QUICK, "--methods", "gen", "--epsilon", "0.1")
    assert status == 1
    assert "Client 0 has " in err
    assert "too few for epsilon 0.1" in err
    assert not (here / "runs").exists()


def test_clients_from_the_graphs_own_column(fedcover, here):
    own_graph(here / "banks", nodes_csv(client=["p", "q", "r"] * 8))
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


def test_a_narrow_encoding_loses_signs_but_not_the_run(here, monkeypatch):
    own_graph(here / "größe")
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


def test_data_list_names_every_graph(fedcover):
    status, out, err = fedcover("data", "list")
    assert (status, err) == (0, "")
    for name in ("cora", "citeseer", "pubmed", "computers", "photo", "cs", "physics"):
        assert re.search(rf"^│ {name} +│", out, re.MULTILINE)
    assert "2,485 | 2,485" in out
    assert "to fetch" in out


def test_data_show_puts_the_published_numbers_beside(fedcover):
    status, out, err = fedcover("data", "show", "cora")
    assert (status, err) == (0, "")
    assert [re.findall(r"[\w,]+", line) for line in out.splitlines() if "7 " in line] == [
        ["whole", "graph", "2,708", "10,556", "1,433", "7"],
        ["largest", "component", "2,485", "10,138", "1,433", "7"],
        ["paper", "2,485", "10,138", "2,485", "7"],
    ]


def test_data_show_takes_an_own_graph(fedcover):
    status, out, _ = fedcover("data", "show", "own")
    assert status == 0
    assert re.search(r"whole graph +│ +24 │ +96 │ +2 │ +2 │", out)


def test_data_cuts_puts_the_papers_missing_edges_beside(fedcover):
    status, out, err = fedcover("data", "cuts", "cora", "--seeds", "1")
    assert (status, err) == (0, "")
    rows = [re.findall(r"[\w,.]+", line) for line in out.splitlines() if "10,138" in line]
    assert [(row[2], row[-2]) for row in rows] == [("5", "604"), ("10", "806"), ("20", "1,230")]


def test_data_fetch_needs_nothing_for_cora(fedcover, here):
    assert fedcover("data", "fetch", "cora") == (0, "cora is part of the package.\n", "")
    assert listing(here) == ["own"]


def test_version(fedcover):
    assert fedcover("--version") == (0, f"fedcover {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_alone_it_prints_help_and_means_wrong_usage(fedcover, arguments):
    status, out, err = fedcover(*arguments)
    assert (status, err) == (2, "")
    assert out.count("Usage:") == 1
    assert ("run" if not arguments else "fetch") in out


@pytest.mark.parametrize("arguments", [["--help"], ["run", "-h"], ["data", "show", "--help"]])
def test_help(fedcover, arguments):
    status, out, err = fedcover(*arguments)
    assert (status, err) == (0, "")
    assert "Usage: fedcover" in out


# What is refused

BAD_USAGE = {
    "no graph": ("run", "Missing argument 'GRAPH'; see fedcover run --help."),
    "no name": ("data fetch", "Missing argument 'NAME'; see fedcover data fetch --help."),
    "no such command": ("xyz", "No such command 'xyz'; see fedcover --help."),
    "unknown command": ("rnu cora", "fedcover: No such command 'rnu'; did you mean run?\n"),
    "unknown subcommand": (
        "data fetchh",
        "fedcover: No such command 'fetchh'; did you mean fetch?",
    ),
    "unknown option": (
        "run cora --clinets 3",
        "fedcover: No such option '--clinets'; did you mean --clients?\n",
    ),
    "option alone": ("run cora --clients", "'--clients' requires an argument"),
    "extra argument": ("run cora citeseer", "unexpected extra argument"),
    "flag with a value": ("run cora --quiet=3", "'--quiet' does not take a value"),
    "clients word": ("run own --clients x", "'--clients': 'x' is not a whole number"),
    "clients half": ("run own --clients 2.5", "'--clients': '2.5' is not a whole number"),
    "clients 0": ("run own --clients 0", "clients is 0; it must be a whole number of 1 or more."),
    "clients -1": ("run own --clients -1", "clients is -1; it must be a whole number of 1"),
    "clients too many": ("run own --clients 25", "clients is 25, but own has only 24 nodes."),
    "alpha 0": ("run own --alphas 0", "alphas has 0; every alpha must lie strictly between"),
    "alpha 1": ("run own --alphas 0.1,1", "alphas has 1; every alpha must lie strictly between"),
    "alpha nan": ("run own --alphas nan", "alphas has nan; every alpha"),
    "alpha word": ("run own --alphas five", "--alphas is 'five'; give numbers separated by"),
    "alpha twice": ("run own --alphas 0.1,0.10", "alphas names 0.1 twice."),
    "alphas empty": ("run own --alphas=", "--alphas is ''; give numbers separated by"),
    "alphas comma": ("run own --alphas 0.1,,0.2", "--alphas is '0.1,,0.2'; give numbers"),
    "method": ("run own --methods loc,gem", "methods has 'gem'; it must be one of loc, fed"),
    "recipe's method": ("run own --methods gem+prior", "methods has 'gem+prior'; it must be one"),
    "recipe's part": (
        "run own --methods fed,fed+priors",
        "methods has 'fed+priors'; a method may be followed by +prox, +prior",
    ),
    "recipe's part twice": ("run own --methods fed+mix+mix", "'fed+mix+mix'; a method may be"),
    "recipe tuned and mixed": (
        "run own --methods fed+tuned+mix",
        "methods has 'fed+tuned+mix'; +mix already holds the tuned model.",
    ),
    "recipe without a shared model": (
        "run own --methods loc+mix",
        "loc has no model that several clients share, so +mix means nothing there.",
    ),
    "recipe twice": (
        "run own --methods fed+prior+mix,fed+mix+prior",
        "methods names 'fed+prior+mix' twice.",
    ),
    "graph score": ("run own --scores lac,dslac", "scores has 'dslac'; it must be one of lac, aps"),
    "graph score twice": ("run own --scores slac,slac", "scores names 'slac' twice."),
    "epsilon": ("run own --epsilon 0", "epsilon is 0; it must lie between 0.1 and 100, or"),
    "epsilon word": ("run own --epsilon low", "Invalid value for '--epsilon'"),
    "shares": ("run own --shares 0.1,2", "shares has 2; every share must be above 0 and at most"),
    "shares word": ("run own --shares a", "--shares is 'a'; give numbers separated by"),
    "prototypes": ("run own --prototypes 0", "prototypes has 0; every number must be 1 or more."),
    "prototypes half": ("run own --prototypes 2.5", "--prototypes is '2.5'; give whole numbers"),
    "linking": ("run own --linking all", "linking is 'all'; it must be one of node, global."),
    "dp": ("run own --dp-prototypes mean", "dp_prototypes has 'mean'; it must be one of prior"),
    "method twice": ("run own --methods loc,loc", "methods names 'loc' twice."),
    "methods empty": ("run own --methods=", "--methods is ''; give words separated by"),
    "methods comma": ("run own --methods loc,,fed", "--methods is 'loc,,fed'; give words"),
    "score": ("run own --scores thr", "scores has 'thr'; it must be one of lac, aps, aps-det"),
    "quantile": ("run own --quantiles mean", "quantiles has 'mean'; it must be one of exact"),
    "partition": ("run own --partition kmeans", "partition has 'kmeans'; it must be one of"),
    "model": ("run own --model gat", "model has 'gat'; it must be one of gcn, "),
    "preset": (
        "run own --preset papre",
        "preset is 'papre'; it must be one of default, plain, paper.",
    ),
    "rounds 0": ("run own --rounds 0", "rounds is 0; it must be a whole number of 1 or more."),
    "epochs 0": ("run own --local-epochs 0", "local_epochs is 0; it must be a whole number of 1"),
    "hidden 0": ("run own --hidden 0", "hidden is 0; it must be a whole number of 1 or more."),
    "seeds 0": ("run own --seeds 0", "seeds is 0; it must be a whole number of 1 or more."),
    "first seed -1": (
        "run own --first-seed -1",
        "first_seed is -1; it must be a whole number of 0",
    ),
    "first seed large": ("run own --first-seed 99999999999", "seed is 99999999999, but must be"),
    "a later seed too large": (
        "run own --clients 2 --first-seed 2147483646 --seeds 2",
        "seed is 2147483647, but must be an integer from 0 to 2147483646.",
    ),
    "resplits 0": ("run own --resplits 0", "resplits is 0; it must be a whole number of 1"),
    "batch size -1": (
        "run own --batch-size -1",
        "batch_size is -1; it must be a whole number of 0",
    ),
    "threads 0": ("run own --threads 0", "threads is 0; it must be a whole number of 1 or more."),
    "threads too many": (
        "run own --threads 1000000",
        f"threads is 1000000; it must be at most {4 * (os.cpu_count() or 1)}, 4 for each core",
    ),
    "out is a file": ("run own --out a_file", "a_file is a file; a run needs a folder"),
    "out before anything is read": ("run nowhere --out a_file", "a_file is a file; a run"),
    "out in a file": ("run own --out a_file/r", "a_file is a file; a_file/r cannot be made in it."),
    "out is foreign": (
        "run own --out own",
        "own exists and is not a run folder: it holds edges.csv, which would be lost; choose",
    ),
    "out holds the working folder": ("run own --out a_folder/..", "exists and is not a run folder"),
    "clients not the column's": (
        "run banks --partition given --clients 3",
        "clients is 3, but the client column of banks has 2.",
    ),
    "missing": ("run own --missing drop", "missing is 'drop'; it must be one of refuse, impute."),
    "fetch misspelt": ("data fetch coar", "'coar' is not a known graph; did you mean 'cora'?"),
    "cuts of another graph": ("data cuts pubmed", "'pubmed' is not in the paper's table; it has"),
    "cuts seeds 0": ("data cuts cora --seeds 0", "--seeds is 0; it must be a whole number of 1"),
    "cuts seeds word": ("data cuts --seeds x", "'--seeds': 'x' is not a whole number"),
}


def npz(folder, **arrays):
    own = {
        "adj_data": np.ones(2),
        "adj_indices": np.array([1, 0]),
        "adj_indptr": np.array([0, 1, 2]),
        "adj_shape": np.array([2, 2]),
        "attr_matrix": np.eye(2),
        "labels": np.array([0, 1]),
    }
    np.savez(folder / "bad.npz", **(own | arrays))


def write_bad(name, content):
    """A maker of the file ``name`` of the graph ``bad``, the others being good."""

    def make(folder):
        own_graph(folder / "bad")
        (folder / "bad" / name).write_text(content)

    return make


def bad_nodes(**columns):
    return write_bad("nodes.csv", nodes_csv(**columns))


def changed(values, at, to):
    return [to if i == at else value for i, value in enumerate(values)]


IDS = [f"n{i}" for i in range(24)]
LABELS = ["dog", "cat"] * 12
ONES = [1.0] * 24
SPLITS = ["train", "valid", "calib", "test"] * 6

BAD_DATA = {
    "no path": (None, "run nowhere", "nowhere is neither a path that exists nor a known name;"),
    "misspelt name": (None, "run coar", "did you mean 'cora'? The known names are cora, citeseer"),
    "name too long": (None, f"run {'a' * 300}", "File name too long."),
    "not a graph file": (None, "run a_file", "a_file is neither an .npz file nor a folder"),
    "empty folder": (None, "run a_folder", "a_folder has neither nodes.csv nor nodes.parquet,"),
    "not an npz": (
        lambda here: (here / "bad.npz").write_text("no npz"),
        "run bad.npz",
        "bad.npz is not a readable npz file.",
    ),
    "pickled npz": (
        lambda here: npz(here, labels=np.array([{}, 1], dtype=object)),
        "run bad.npz",
        "bad.npz: array labels is stored as a pickled object, which is never loaded.",
    ),
    "npz without labels": (
        lambda here: npz(here, labels=np.array([1, 1, 0])),
        "run bad.npz",
        "bad.npz: array labels has 3 entries, but the graph has 2 nodes.",
    ),
    "no id": (bad_nodes(id=None), "run bad", "bad/nodes.csv has no column 'id'"),
    "no label": (bad_nodes(label=None), "run bad", "bad/nodes.csv has no column 'label'"),
    "no label at all": (bad_nodes(label=[""] * 24), "run bad", "column 'label': is empty for"),
    "one label": (bad_nodes(label=["dog"] * 24), "run bad", "has the same value, 'dog', for every"),
    "no feature": (bad_nodes(a=None, b=None), "run bad", "bad/nodes.csv has no feature column"),
    "NaN": (bad_nodes(a=changed(ONES, 2, float("nan"))), "run bad", "line 4, column 'a': is not"),
    "word in a feature": (
        bad_nodes(a=changed(["1"] * 24, 0, "red")),
        "run bad",
        "bad/nodes.csv, line 2, column 'a': 'red' is not a number.",
    ),
    "twin": (bad_nodes(id=changed(IDS, 5, "n4")), "run bad", "the id 'n4' has been used before."),
    "unknown split": (
        bad_nodes(split=changed(SPLITS, 1, "dev")),
        "run bad",
        "line 3, column 'split': 'dev' is not one of train, valid, calib, test.",
    ),
    "no test node": (
        bad_nodes(split=["train", "calib"] * 12),
        "run bad",
        "column 'split': no node has 'test'.",
    ),
    "client without calibration": (
        bad_nodes(split=SPLITS, client=["p" if s != "calib" else "q" for s in SPLITS]),
        "run bad --partition given",
        "Client q has no node with split 'train'.",
    ),
    "empty client": (
        bad_nodes(client=changed(["p"] * 24, 7, "")),
        "run bad --partition given",
        "bad/nodes.csv, line 9, column 'client': is empty.",
    ),
    "client too small": (
        bad_nodes(client=changed(["p"] * 24, 7, "q")),
        "run bad --partition given",
        "Client q has too few nodes, 1, to train on 20% of them",
    ),
    "too few nodes": (
        None,
        "run own --clients 12 --partition random",
        "Client 0 has too few nodes, 2, to train",
    ),
    "no client column": (None, "run own --partition given", "own has no client column, which"),
    "no nodes": (write_bad("nodes.csv", "id,label,a\n"), "run bad", "bad/nodes.csv has no nodes."),
    "empty file": (write_bad("nodes.csv", ""), "run bad", "bad/nodes.csv is empty, but its first"),
    "no target": (write_bad("edges.csv", "source\nn1\n"), "run bad", "no column 'target'"),
    "edge to nobody": (
        write_bad("edges.csv", edges_csv(extra="n1,n99\n")),
        "run bad",
        "bad/edges.csv, line 50, column 'target': 'n99' is not the id of a node.",
    ),
    "more Louvain clients than communities": (
        None,
        "run own --clients 8 --partition louvain",
        "fewer than 8 clients; take fewer clients or partition 'metis'.",
    ),
    "data is no folder": (
        None,
        "run computers --data nowhere",
        "data names nowhere, which is not a folder.",
    ),
    "data incomplete": (
        lambda here: (here / "a_folder/Computers/raw").mkdir(parents=True),
        "run computers --data a_folder",
        "a_folder/Computers/raw has no amazon_electronics_computers.npz.",
    ),
    "offline": (
        None,
        "run computers",
        "Amazon Computers could not be downloaded (Network is unreachable): name a folder",
    ),
    "offline fetch": (None, "data fetch photo", "Amazon Photo could not be downloaded (Network"),
    "show nowhere": (None, "data show nowhere", "nowhere is neither a path that exists nor"),
}
BAD = [
    *(pytest.param(None, 2, *case, id=f"usage: {name}") for name, case in BAD_USAGE.items()),
    *(
        pytest.param(make, 1, command, fragment, id=f"data: {name}")
        for name, (make, command, fragment) in BAD_DATA.items()
    ),
]


@pytest.mark.parametrize(("make", "status", "command", "fragment"), BAD)
def test_what_is_wrong_is_one_sentence_and_leaves_nothing(
    fedcover, here, make, status, command, fragment
):
    (here / "a_file").write_text("")
    (here / "a_folder").mkdir()
    own_graph(here / "banks", nodes_csv(client=["p", "q"] * 12))
    if make is not None:
        make(here)
    before = sorted(path for path in here.rglob("*") if "cache" not in path.parts)

    seen, out, err = fedcover(*command.split())

    assert (seen, out) == (status, "")
    assert err.startswith("fedcover: ")
    assert err.endswith((".\n", "?\n"))
    assert err.count("\n") == 1
    assert fragment in err
    assert sorted(path for path in here.rglob("*") if "cache" not in path.parts) == before
    assert not [path for path in here.rglob("cache/**/*") if path.is_file()]


def test_too_little_memory_is_a_failed_run(fedcover, monkeypatch):
    def too_large(*_, **__):
        raise MemoryError

    monkeypatch.setattr("fedcover.federation.InProcess.train", too_large)
    status, out, err = fedcover("run", "own", *QUICK)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == "fedcover: there is not enough memory for this run."


def test_an_unwritable_target_is_a_failed_run(fedcover, here, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    status, out, err = fedcover("run", "own", *QUICK, "--alphas", "0.3", "--out", "r")
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == "fedcover: r cannot be written: No space left on device."
    assert listing(here) == ["own"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to one process")
def test_an_interrupted_run_leaves_nothing(here):
    command = [sys.executable, "-m", "fedcover", "run", "own", *QUICK, "--rounds", "1000000"]
    with subprocess.Popen(
        command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "partition: 2 of 2\n"
        time.sleep(0.2)  # training has begun
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()  # so that a run which does not listen fails the test and ends
    assert process.returncode == 130
    assert (out, err) == ("", "fedcover: interrupted; nothing is half-written.\n")
    assert listing(here) == ["own"]
