"""The examples do what they say: their commands, cells and scripts run, on made-up patients."""

import importlib.util
import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedcover
from fedcover import cli, conformal
from fedcover.graphs.inspection import inspect
from fedcover.graphs.partition import partition

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def make():
    return module(EXAMPLES / "hospitals" / "make.py")


def shell(line: str, monkeypatch) -> None:
    """Run one line of a README: a script of the project, or fedcover itself."""
    program, *words = shlex.split(line)
    if program == "python":
        script, *words = words
        monkeypatch.setattr(sys, "argv", [script, *words])
        runpy.run_path(str(ROOT / script), run_name="__main__")
        return
    assert program == "fedcover"
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 0, line


def test_the_hospitals_readme_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / "hospitals" / "README.md").read_text(encoding="utf-8")
    found = BLOCK.findall(text)
    assert [language for language, _ in found] == ["sh", "sh", "sh", "sh", "python", "sh"]
    for language, block in found:
        if language == "python":
            exec(compile(block, "README.md", "exec"), {})
        else:
            shell(block, monkeypatch)
    out = " ".join(capsys.readouterr().out.split())
    # What the text says of inspect's answers:
    assert "alpha = 0.1: enough" in out
    assert "alpha = 0.01: enough" in out
    assert "alpha = 0.0005: too few" in out
    assert (tmp_path / "runs/hospitals/report.html").is_file()
    tested = pl.read_csv(tmp_path / "sets.csv").filter(kind="test")
    assert tested.height > 1100
    assert tested["promise"].str.starts_with("yes, on average").all()
    results = pl.read_csv(tmp_path / "runs/hospitals/results.csv")
    assert abs(results["n_calibration"][0] - 1200) < 5
    # 1,200 calibration and test nodes, 100 re-splits, two seeds: within a few standard errors.
    assert results["coverage"].to_numpy() == pytest.approx(0.9, abs=0.02)


def test_the_links_of_the_hospitals_readme_lead_somewhere():
    readme = EXAMPLES / "hospitals" / "README.md"
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", readme.read_text(encoding="utf-8"))
    assert len(links) >= 5
    for link in links:
        assert (readme.parent / link).resolve().exists(), link


def test_the_hospitals_are_what_their_description_says(make, tmp_path):
    nodes, edges = make.hospitals(6000, seed=3)
    assert nodes["id"].n_unique() == 6000
    shares = nodes["client"].value_counts(normalize=True)
    for name, share in zip(make.HOSPITALS, make.SHARES, strict=True):
        assert shares.filter(client=name)["proportion"][0] == pytest.approx(share, abs=0.03)
        own = nodes.filter(client=name)["label"].value_counts(normalize=True)
        mix = {row["label"]: row["proportion"] for row in own.to_dicts()}
        expected = make.CASE_MIX[make.HOSPITALS.index(name)]
        for label, wanted in zip(make.DIAGNOSES, expected, strict=True):
            assert mix[label] == pytest.approx(wanted, abs=0.05)
    make.write(tmp_path / "h", 2000, seed=3)
    graph = fedcover.load(tmp_path / "h")
    found = inspect(graph, partition(graph, method="given"), None)
    assert found.graph.features.binary == 2
    assert found.graph.homophily > 0.4  # by chance it would be about a quarter
    assert all(0.2 < client.cut_share < 0.6 for client in found.clients)
    assert not edges.filter(pl.col("source") == pl.col("target")).height


def test_the_seed_decides_the_hospitals(make):
    first, again, other = (make.hospitals(300, seed) for seed in (1, 1, 2))
    assert all(a.equals(b) for a, b in zip(first, again, strict=True))
    assert not first[0].equals(other[0])
    assert not first[1].equals(other[1])


def test_the_notebook_runs_cell_after_cell(tmp_path, monkeypatch):
    copy = shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(copy)
    monkeypatch.syspath_prepend(str(copy))
    notebook = json.loads((copy / "whole_path.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)
    names: dict[str, object] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert (copy / "runs/whole-path/report.html").is_file()
    mean = names["mean"]
    assert isinstance(mean, pl.DataFrame)
    assert np.abs(mean["coverage"] - (1 - mean["alpha"])).max() < 0.03


def test_the_conformal_core_serves_another_model(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "hospitals"))
    threshold, mean = module(EXAMPLES / "own_model.py").main(1500, seed=1)
    out = capsys.readouterr().out
    assert (threshold.clients, threshold.n_calibration) == (3, 500)
    assert f"threshold {threshold.q_hat:.4f} from 500 patients" in out
    low, high = conformal.coverage_band(0.1, [167, 167, 166])  # their spread does not matter
    assert low - 0.01 < mean < high + 0.01
