"""Files are UTF-8 whatever the locale: a run is not lost at its end for a letter in a label."""

import json
import os
import subprocess
import sys

import polars as pl
import pytest

from fedcover.paper import version
from fedcover.paper.definition import read

NODES = 24
C_LOCALE = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
QUICK = ["--methods", "fed", "--clients", "2", "--seeds", "1", "--rounds", "2", "--alphas=0.3"]


def in_c_locale(folder, *words):
    """A Python in which text files are ASCII unless their encoding is said."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **C_LOCALE},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def umlauts(tmp_path):
    """A graph whose labels are no ASCII, and neither is one node's name."""
    folder = tmp_path / "own"
    folder.mkdir()
    names = ["nö", *(f"n{i}" for i in range(1, NODES))]
    nodes = {
        "id": names,
        "label": ["ä" if i % 2 else "ö" for i in range(NODES)],
        "a": [i % 2 + i / 100 for i in range(NODES)],
    }
    edges = {"source": names, "target": [names[(i + 1) % NODES] for i in range(NODES)]}
    pl.DataFrame(nodes).write_csv(folder / "nodes.csv")
    pl.DataFrame(edges).write_csv(folder / "edges.csv")
    return tmp_path


def test_a_run_is_kept(umlauts):
    done = in_c_locale(umlauts, "-m", "fedcover", "run", "own", *QUICK, "--out", "r")
    assert (done.returncode, done.stderr.count("Error")) == (0, 0), done.stderr
    info = json.loads((umlauts / "r" / "run.json").read_bytes())
    assert info["graph"]["label_names"] == ["ä", "ö"]
    assert "ä" in (umlauts / "r" / "model" / "fed" / "model.json").read_text(encoding="utf-8")
    assert "ä" in (umlauts / "r" / "report.html").read_text(encoding="utf-8")


def test_the_papers_definitions_and_the_codes_version_are_the_same(tmp_path):
    words = (
        "from pathlib import Path; import fedcover.paper.definition as d, fedcover.paper.version as"
        " v; print(ascii(d.read(Path('own.toml'))), v.code_version())"
    )
    definition = tmp_path / "own.toml"
    definition.write_text(
        'kind = "cuts"\ntitle = "Größe"\ngraphs = ["cora"]\nclients = [3]\nseeds = 1\n',
        encoding="utf-8",
    )
    done = in_c_locale(tmp_path, "-c", words)
    assert done.stdout == f"{read(definition)!a} {version.code_version()}\n", done.stderr
