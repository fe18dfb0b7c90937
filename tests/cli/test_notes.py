"""Notes are said once: by the logger in Python, by the command itself on the command line."""

import logging
import subprocess
import sys

import polars as pl
import pytest

from fedcover import cli
from fedcover.display.terminal import notes_held_back

NODES = 60
NOTE = "1 of 60 node has no label: each gets a set"
QUICK = ["--clients", "2", "--seeds", "1", "--rounds", "2", "--alphas", "0.3", "--methods", "fed"]
PYTHON = (
    "import fedcover; fedcover.run(fedcover.load('own'), fedcover.Config(clients=2, seeds=1, "
    "rounds=2, alphas=(0.3,), methods=('fed',)))"
)


@pytest.fixture
def here(tmp_path):
    """A folder with a graph of which one node has no label, which a run notes."""
    folder = tmp_path / "own"
    folder.mkdir()
    names = [f"n{i}" for i in range(NODES)]
    labels = ["", *("cat" if i % 2 else "dog" for i in range(1, NODES))]
    nodes = {"id": names, "label": labels, "a": [i % 2 + i / 100 for i in range(NODES)]}
    edges = {"source": names, "target": [names[(i + 1) % NODES] for i in range(NODES)]}
    pl.DataFrame(nodes).write_csv(folder / "nodes.csv")
    pl.DataFrame(edges).write_csv(folder / "edges.csv")
    return tmp_path


@pytest.mark.parametrize(
    "words", [["-c", PYTHON], ["-m", "fedcover", "run", "own", "--quiet", *QUICK]]
)
def test_a_note_is_on_stderr_once(here, words):
    done = subprocess.run(
        [sys.executable, *words], cwd=here, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr.count(NOTE) == 1
    assert done.stdout == ""


def test_tune_says_its_notes_once(here, monkeypatch, capsys):
    monkeypatch.chdir(here)
    # Without pytest's own handlers on the root logger, that of last resort would print.
    monkeypatch.setattr(logging.getLogger("fedcover"), "propagate", False)
    chosen = ["--candidates", "1", "--seeds", "1", "--rounds", "2", "--clients", "2", "--quiet"]
    monkeypatch.setattr(sys, "argv", ["fedcover", "tune", "own", *chosen])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith("fedcover: note: ") for line in lines)


def test_other_speakers_are_held_back_only_for_the_time(monkeypatch, capsys):
    logger = logging.getLogger("fedcover")
    monkeypatch.setattr(logger, "propagate", False)
    with notes_held_back():
        logger.warning("not here")
    assert capsys.readouterr().err == ""
    logger.warning("here")
    assert capsys.readouterr().err == "here\n"
