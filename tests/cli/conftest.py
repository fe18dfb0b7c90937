"""An empty working folder without network, with a small graph in it."""

import numpy as np
import polars as pl
import pytest


@pytest.fixture
def write_graph():
    """Write a ring of nodes with two labels and two features: ``write_graph(folder)``."""
    return _write_graph


def _write_graph(folder, nodes=24, more_edges="", **columns):
    """Columns are added, replaced, or left out (None)."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(nodes, 2)).round(3)
    table = {
        "id": [f"n{i}" for i in range(nodes)],
        "label": ["cat" if i % 2 else "dog" for i in range(nodes)],
        "a": x[:, 0],
        "b": x[:, 1] + np.arange(nodes) % 2,
    }
    chosen = {name: values for name, values in (table | columns).items() if values is not None}
    ring = "".join(f"n{i},n{(i + step) % nodes}\n" for i in range(nodes) for step in (1, 2))
    folder.mkdir()
    pl.DataFrame(chosen).write_csv(folder / "nodes.csv")
    (folder / "edges.csv").write_text(f"source,target\n{ring}{more_edges}")


@pytest.fixture
def here(tmp_path, monkeypatch, write_graph):
    """The folder, with the graph ``own``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOVER_DATA", raising=False)

    def offline(*_, **__):
        raise OSError("Network is unreachable")

    monkeypatch.setattr("requests.get", offline)
    write_graph(tmp_path / "own")
    return tmp_path


@pytest.fixture
def fedcover(here, calling):
    """``fedcover("run", "cora")`` gives exit status, stdout and stderr."""
    return calling
