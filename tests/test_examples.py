"""The examples do what they say: their commands, cells and scripts run, on made-up data."""

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


@pytest.fixture
def banks():
    return module(EXAMPLES / "banks" / "make.py")


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


@pytest.mark.parametrize("example", ["hospitals", "banks"])
def test_the_links_of_a_readme_lead_somewhere(example):
    readme = EXAMPLES / example / "README.md"
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


def test_the_banks_readme_runs_on_fewer_accounts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / "banks" / "README.md").read_text(encoding="utf-8")
    commands = [
        (language, line)
        for language, block in BLOCK.findall(text)
        for line in ([block] if language == "python" else block.splitlines())
        if language in ("sh", "python")
    ]
    names: dict[str, object] = {}
    for language, line in commands:
        if language == "python":
            exec(compile(line, "README.md", "exec"), names)
        elif not re.search("federation try|ledger", line):  # the next test
            line = line.replace("make.py banks", "make.py banks --accounts 1200")
            shell(line.replace("--seeds 3", "--seeds 1 --rounds 5"), monkeypatch)
    out = " ".join(capsys.readouterr().out.split())
    assert "listed by one party alone and not used" in out
    assert len(re.findall(r"fingerprint: (\w+)", out)) == 4
    assert len(set(re.findall(r"fingerprint: (\w+)", out))) == 1
    methods = set(pl.read_csv("runs/banks/results.csv")["method"])
    assert {"fed", "fed+neighbours", "restored", "fed+neighbours+prox+prior+mix"} <= methods
    assert (tmp_path / "runs/banks/report.html").is_file()


@pytest.mark.federation  # a minute or two, most of it start-up
def test_the_banks_train_over_a_network_as_in_a_simulation(banks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    banks.write(tmp_path / "banks", 800, seed=0)
    common = "--methods fed+neighbours --model sage --alphas 0.1 --rounds 3"
    shell(
        f"fedcover run banks --partition given {common} --seeds 1 --out runs/simulated", monkeypatch
    )
    shell(f"fedcover federation try banks {common} --out runs/banks-network", monkeypatch)
    sites = Path("runs/banks-network-sites")
    shell(f"fedcover ledger show {sites / 'alder'} --direction up", monkeypatch)
    simulated = pl.read_csv("runs/simulated/results.csv")
    network = pl.read_csv("runs/banks-network/results.csv")
    assert network["q_hat"][0] == pytest.approx(simulated["q_hat"][0], rel=1e-6)
    assert network["n_calibration"][0] == simulated["n_calibration"][0]
    assert all(list((sites / name).glob("results/*/*")) for name in banks.BANKS)
    assert not list(
        (tmp_path / "banks").glob("*/results")
    )  # the parties' folders stay as they were


def test_both_banks_list_a_link_unless_one_booked_it_late(banks):
    tables = banks.banks(2400, seed=3)
    seen: list[frozenset[tuple[str, str]]] = []
    for name, bank in tables.items():
        own, others = set(bank.nodes["id"]), set(banks.BANKS) - {name}
        assert bank.nodes["id"].n_unique() == bank.nodes.height
        assert set(bank.edges["source"]) | set(bank.edges["target"]) <= own
        assert set(bank.links["node"]) <= own
        assert set(bank.links["party"]) == others
        for party, rows in bank.links.group_by("party"):
            assert set(rows["other"]) <= set(tables[str(party[0])].nodes["id"])
        assert bank.links.is_unique().all()
        seen += [frozenset({(name, a), (b, c)}) for a, b, c in bank.links.iter_rows()]
    counts = pl.Series([seen.count(link) for link in set(seen[:500])])
    assert set(counts) == {1, 2}
    assert (counts == 1).mean() == pytest.approx(banks.LATE, abs=0.03)


def test_the_banks_are_what_their_description_says(banks, tmp_path):
    tables = banks.banks(6000, seed=3)
    for k, (name, bank) in enumerate(tables.items()):
        assert bank.nodes.height == pytest.approx(6000 * banks.SHARES[k], abs=1)
        assert bank.nodes["label"].is_null().mean() == pytest.approx(banks.OPEN[k], abs=0.04)
        own = bank.nodes["label"].drop_nulls().value_counts(normalize=True)
        mix = {row["label"]: row["proportion"] for row in own.to_dicts()}
        for label, wanted in zip(banks.LABELS, banks.LABEL_MIX[k], strict=True):
            assert mix[label] == pytest.approx(wanted, abs=0.05), name
    label = {
        (name, account): label
        for name, bank in tables.items()
        for account, label in bank.nodes.select("id", "label").iter_rows()
    }
    rings = ("mule", "collector", "front")
    across = sum(
        label[name, a] in rings and label[b, c] in rings
        for name, bank in tables.items()
        for a, b, c in bank.links.iter_rows()
    ) / (2 - banks.LATE)
    within = sum(
        label[name, a] in rings and label[name, b] in rings
        for name, bank in tables.items()
        for a, b in bank.edges.iter_rows()
    )
    # Everyday transfers are among these, too, and a ring may have nobody elsewhere.
    assert across / (across + within) > 0.8
    banks.write(tmp_path / "banks", 2400, seed=3)
    graph = fedcover.load(tmp_path / "banks")
    found = inspect(graph, partition(graph, method="given"), None)
    assert [client.name for client in found.clients] == sorted(banks.BANKS)
    assert all(0.6 < client.cut_share < 0.95 for client in found.clients)
    assert 0 < sum(graph.listed_once.values()) < 0.06 * graph.num_edges / 2


def test_the_seed_decides_the_banks(banks):
    first, again, other = (banks.banks(800, seed) for seed in (1, 1, 2))
    for name in banks.BANKS:
        assert all(a.equals(b) for a, b in zip(first[name], again[name], strict=True))
        assert not any(a.equals(b) for a, b in zip(first[name], other[name], strict=True))


def test_what_other_banks_know_makes_the_sets_better(banks, tmp_path):
    banks.write(tmp_path / "banks", 2000, seed=0)
    config = fedcover.Config(
        partition="given",
        model="sage",
        methods=("fed", "fed+neighbours"),
        alphas=(0.1,),
        seeds=3,
        rounds=40,
    )
    run = fedcover.run(fedcover.load(tmp_path / "banks"), config)
    fed, linked = (run.results.filter(method=name) for name in config.methods)
    # With seeds 0, 1 and 2 of the accounts: accuracy 0.018 to 0.028 more, 0.07 to 0.26 labels less.
    assert linked["accuracy"].mean() > fed["accuracy"].mean() + 0.01
    assert linked["set_size"].mean() < fed["set_size"].mean() - 0.03
    assert run.results["coverage"].to_numpy() == pytest.approx(0.9, abs=0.02)


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
