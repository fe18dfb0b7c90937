"""What is wrong is told in one sentence, and leaves nothing half-written."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

QUICK = ["--clients", "2", "--seeds", "2", "--rounds", "3", "--hidden", "4", "--resplits", "5"]


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


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
    "clients word": (
        "run own --clients x",
        "clients is 'x'; it must be a whole number of 1 or more.",
    ),
    "clients half": (
        "run own --clients 2.5",
        "clients is '2.5'; it must be a whole number of 1 or",
    ),
    "clients 0": ("run own --clients 0", "clients is 0; it must be a whole number of 1 or more."),
    "clients -1": ("run own --clients -1", "clients is -1; it must be a whole number of 1"),
    "clients too many": ("run own --clients 25", "clients is 25, but own has only 24 nodes."),
    "alpha 0": ("run own --alphas 0", "alphas has 0; every alpha must lie strictly between"),
    "alpha 1": ("run own --alphas 0.1,1", "alphas has 1; every alpha must lie strictly between"),
    "alpha nan": ("run own --alphas nan", "alphas has nan; every alpha"),
    "alpha word": ("run own --alphas five", "alphas has 'five'; every alpha must lie strictly"),
    "alpha twice": ("run own --alphas 0.1,0.10", "alphas names 0.1 twice."),
    "alphas empty": ("run own --alphas=", "alphas has ''; every alpha must lie strictly"),
    "alphas comma": ("run own --alphas 0.1,,0.2", "alphas has ''; every alpha must lie"),
    "method": ("run own --methods loc,gem", "methods has 'gem'; it must be one of loc, fed"),
    "recipe's method": ("run own --methods gem+prior", "methods has 'gem+prior'; it must be one"),
    "recipe's part": (
        "run own --methods fed,fed+priors",
        "methods has 'fed+priors'; a method may be followed by +neighbours, +prox",
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
    "epsilon word": ("run own --epsilon low", "epsilon is 'low'; it must lie between 0.1 and 100"),
    "shares": ("run own --shares 0.1,2", "shares has 2; every share must be above 0 and at most"),
    "shares word": ("run own --shares a", "gen.shares has 'a'; every share must be above 0"),
    "prototypes": (
        "run own --prototypes 0",
        "prototypes has 0; every number must be a whole",
    ),
    "prototypes half": ("run own --prototypes 2.5", "gen.prototypes has '2.5'; every number must"),
    "linking": ("run own --linking all", "linking is 'all'; it must be one of node, global."),
    "dp": ("run own --dp-prototypes mean", "dp_prototypes is 'mean'; it must be one of prior"),
    "method twice": ("run own --methods loc,loc", "methods names 'loc' twice."),
    "methods empty": ("run own --methods=", "methods has ''; it must be one of loc, fed"),
    "methods comma": ("run own --methods loc,,fed", "methods has ''; it must be one of"),
    "score": ("run own --scores thr", "scores has 'thr'; it must be one of lac, aps, aps-det"),
    "quantile": ("run own --quantiles mean", "quantiles has 'mean'; it must be one of exact"),
    "partition": ("run own --partition kmeans", "partition is 'kmeans'; it must be one of"),
    "model": ("run own --model gat", "model is 'gat'; it must be one of gcn, "),
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
        "clients is 3, but the client column of banks/nodes.csv has 2.",
    ),
    "missing": ("run own --missing drop", "missing is 'drop'; it must be one of refuse, impute."),
    "sets of another kind": (
        "predict nowhere own --out s.txt",
        "--out is 's.txt'; it must end in .csv or .parquet or .json.",
    ),
    "sets in a file": (
        "predict nowhere own --out a_file/s.csv",
        "a_file is a file; a_file/s.csv cannot be made in it.",
    ),
    "fetch misspelt": ("data fetch coar", "'coar' is not a known graph; did you mean 'cora'?"),
    "cuts of another graph": ("data cuts pubmed", "'pubmed' is not in the paper's table; it has"),
    "cuts seeds 0": ("data cuts cora --seeds 0", "seeds is 0; it must be a whole number of 1"),
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


def bad(name, content):
    """A maker of the file ``name`` of the graph ``bad``, the other being good."""

    def make(here, write_graph):
        write_graph(here / "bad")
        (here / "bad" / name).write_text(content)

    return make


def bad_graph(**wrong):
    """A maker of the graph ``bad``, as ``write_graph`` writes it."""
    return lambda here, write_graph: write_graph(here / "bad", **wrong)


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
        lambda here, _: (here / "bad.npz").write_text("no npz"),
        "run bad.npz",
        "bad.npz is not a readable npz file.",
    ),
    "pickled npz": (
        lambda here, _: npz(here, labels=np.array([{}, 1], dtype=object)),
        "run bad.npz",
        "bad.npz: array labels is stored as a pickled object, which is never loaded.",
    ),
    "npz without labels": (
        lambda here, _: npz(here, labels=np.array([1, 1, 0])),
        "run bad.npz",
        "bad.npz: array labels has 3 rows; the graph has 2 nodes.",
    ),
    "no id": (bad_graph(id=None), "run bad", "bad/nodes.csv has no column 'id'"),
    "no label": (bad_graph(label=None), "run bad", "bad/nodes.csv has no column 'label'"),
    "no label at all": (bad_graph(label=[""] * 24), "run bad", "column 'label': is empty for"),
    "one label": (bad_graph(label=["dog"] * 24), "run bad", "has the same value, 'dog', for every"),
    "no feature": (bad_graph(a=None, b=None), "run bad", "bad/nodes.csv has no feature column"),
    "NaN": (bad_graph(a=changed(ONES, 2, float("nan"))), "run bad", "line 4, column 'a': is not"),
    "word in a feature": (
        bad_graph(a=changed(["1"] * 24, 0, "red")),
        "run bad",
        "bad/nodes.csv, line 2, column 'a': 'red' is not a number.",
    ),
    "twin": (bad_graph(id=changed(IDS, 5, "n4")), "run bad", "the id 'n4' has been used before."),
    "unknown split": (
        bad_graph(split=changed(SPLITS, 1, "dev")),
        "run bad",
        "line 3, column 'split': 'dev' is not one of train, valid, calib, test.",
    ),
    "no calibration node": (
        bad_graph(split=["train", "test"] * 12),
        "run bad",
        "column 'split': no node has 'calib'.",
    ),
    "test nodes at one client alone": (
        bad_graph(
            split=["train", "calib"] * 8 + ["train", "calib", "test", "test"] * 2,
            client=["p"] * 12 + ["q"] * 12,
        ),
        "run bad --partition given",
        "Client p has no node with split 'test'.",
    ),
    "client without calibration": (
        bad_graph(split=SPLITS, client=["p" if s != "calib" else "q" for s in SPLITS]),
        "run bad --partition given",
        "Client p has no node with split 'calib'.",
    ),
    "empty client": (
        bad_graph(client=changed(["p"] * 24, 7, "")),
        "run bad --partition given",
        "bad/nodes.csv, line 9, column 'client': is empty.",
    ),
    "client too small": (
        bad_graph(client=changed(["p"] * 24, 7, "q")),
        "run bad --partition given",
        "Client q has too few nodes, 1, to train on 20% of them",
    ),
    "too few nodes": (
        None,
        "run own --clients 12 --partition random",
        "Client 0 has too few nodes, 2, to train",
    ),
    "no client column": (None, "run own --partition given", "own/nodes.csv has no client column"),
    "no nodes": (bad("nodes.csv", "id,label,a\n"), "run bad", "bad/nodes.csv has no nodes."),
    "empty file": (bad("nodes.csv", ""), "run bad", "bad/nodes.csv is empty, but its first"),
    "no target": (bad("edges.csv", "source\nn1\n"), "run bad", "no column 'target'"),
    "edge to nobody": (
        bad_graph(more_edges="n1,n99\n"),
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
        lambda here, _: (here / "a_folder/Computers/raw").mkdir(parents=True),
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
    fedcover, here, write_graph, make, status, command, fragment
):
    (here / "a_file").write_text("")
    (here / "a_folder").mkdir()
    write_graph(here / "banks", client=["p", "q"] * 12)
    if make is not None:
        make(here, write_graph)
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

    monkeypatch.setattr("fedcover.training.program.Program.fit", too_large)
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
