"""The long version over real processes (``make test-federation``): kills, cut networks, ten sites.

Every test prints its seeds, so that a failure can be had again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedcover.carriers.network import journal
from fedcover.carriers.network.coordinate import FAILURE, coordinate
from fedcover.carriers.network.flower.local import LocalFederation
from fedcover.carriers.network.job import Assignment, assignment_from, job_folder
from fedcover.carriers.network.member import InProcess, Member
from fedcover.graphs.sites import site_folders

from .conftest import running, until
from .test_processes import settings_for

pytestmark = pytest.mark.federation

PHASES = ("gen/prototypes", "gen/links", "gen/shared", "gen/quantile")
RUNS = 12
LIMIT = 300.0


def reached(ledger: Path, phase: str) -> bool:
    if not ledger.exists():
        return False
    return f'"part": "{phase}' in ledger.read_text(errors="replace")


def failed(out: Path) -> str:
    file = job_folder(out) / FAILURE
    return file.read_text() if file.exists() else ""


def check_sets(sites: Path, out: Path) -> None:
    """Every set file is whole, and holds what the coordinator was told."""
    groups = pl.read_csv(out / "groups.csv").filter(pl.col("kind") == "client")
    for (name,), rows in groups.group_by("group"):
        files = sorted((sites / str(name)).glob("results/*/sets-*.parquet"), key=os.path.getmtime)
        sets = pl.read_parquet(files[-1])
        for row in rows.iter_rows(named=True):
            key = ("method", "score", "quantile", "alpha")
            mine = sets.filter(*(pl.col(k) == row[k] for k in key))
            assert len(mine) == row["n_test"]
            assert mine["covered"].mean() == pytest.approx(row["coverage"])
            assert mine["size"].mean() == pytest.approx(row["set_size"])
    for file in sites.glob("*/results/*/*.parquet"):
        pl.read_parquet(file)


def undisturbed(folder: Path, settings: dict[str, object], toy_sites: Callable[..., Path]) -> Path:
    """The same job on the same sites, in one process where nobody dies."""
    sites = toy_sites(folder / "same", ("ada", "bob", "cleo"))
    job = assignment_from(settings)
    members = [Member(site) for site in site_folders(sites)]
    return coordinate(Assignment(job.job, job.schema, folder / "undisturbed"), InProcess(members))


def set_bytes(sites: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(sites.glob("*/results/*/sets-*.parquet"))]


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_kill_at_a_random_moment_of_a_random_phase(
    seed: int, tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    rng = np.random.default_rng([seed, 0xDEAD])
    victim = ("superlink", "ada", "bob", "cleo")[int(rng.integers(4))]
    phase, pause = PHASES[int(rng.integers(len(PHASES)))], float(rng.random())
    back = bool(rng.integers(2))
    print(f"\nseed {seed}: {victim} killed {pause:.2f} s into {phase}, comes back: {back}")
    toy_sites(tmp_path / "sites", ("ada", "bob", "cleo"))
    with running(tmp_path, tmp_path / "sites") as up:
        out = tmp_path / "out"
        settings = settings_for(
            tmp_path / "sites", out, methods="gen", scores="lac", rounds=8, timeout=20.0
        )
        up.start_job(settings)
        ledger = tmp_path / "out.job" / journal.FILE
        until(lambda: reached(ledger, phase) or out.exists(), LIMIT, f"{phase} was not reached")
        time.sleep(pause)
        up.stop(victim, signal.SIGKILL)
        if victim == "superlink":
            time.sleep(2)
            up.start_superlink()
            if not out.exists():
                up.start_job(settings)
        elif back:
            time.sleep(2)
            up.start_site(next(site for site in up.sites if site.name == victim))
        until(lambda: (out / "run.json").exists() or bool(failed(out)), LIMIT, "it hangs")
        if (out / "run.json").exists():
            info = json.loads((out / "run.json").read_text())
            check_sets(tmp_path / "sites", out)
            answered = info["federation"]["answered"].values()
            if all(set(sites) == {0, 1, 2} for rounds in answered for sites in rounds):
                same = undisturbed(tmp_path, settings, toy_sites)
                assert (out / "groups.csv").read_bytes() == (same / "groups.csv").read_bytes()
                assert set_bytes(tmp_path / "sites") == set_bytes(tmp_path / "same")
            print(f"seed {seed}: a result; {info['notes'] or 'nothing to note'}")
        else:
            print(f"seed {seed}: refused; {failed(out)}")
            assert "sites" in failed(out)


def test_a_site_that_was_killed_comes_back(tmp_path: Path, toy_sites: Callable[..., Path]) -> None:
    """Flower lets it in when its last heartbeat is a minute old; it tries until then."""
    sites = toy_sites(tmp_path / "sites", ("ada", "bob", "cleo"))
    with running(tmp_path, sites) as up:
        out = tmp_path / "out"
        changes = {"methods": "fed", "rounds": 110, "patience": 110, "timeout": 15.0}
        up.start_job(settings_for(sites, out, scores="lac", **changes))
        ledger = tmp_path / "out.job" / journal.FILE
        until(lambda: reached(ledger, "fed/shared"), LIMIT, "training was not reached")
        up.stop("bob", signal.SIGKILL)
        time.sleep(2)
        up.start_site(sites / "bob")
        until((out / "run.json").exists, 2 * LIMIT, "no run folder")
        federation = json.loads((out / "run.json").read_text())["federation"]
        answered = federation["answered"]["fed/shared"]
        without = sum(1 not in round_ for round_ in answered)
        print(f"\nkilled and back: {without} of {len(answered)} rounds without it")
        assert 0 < without < len(answered)
        assert 1 in answered[-1]
        check_sets(sites, out)


def test_a_coordinator_that_was_killed_ends_with_the_same_numbers(
    tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    toy_sites(tmp_path / "sites", ("ada", "bob", "cleo"))
    with running(tmp_path, tmp_path / "sites") as up:
        whole, again = tmp_path / "whole", tmp_path / "again"
        changes = {"methods": "gen", "rounds": 10}
        up.start_job(settings_for(tmp_path / "sites", whole, **changes))
        until((whole / "run.json").exists, LIMIT, "no run folder")
        settings = settings_for(tmp_path / "sites", again, **changes)
        for phase in ("gen/links", "gen/shared"):
            up.start_job(settings)
            until(lambda at=phase: reached(tmp_path / "again.job" / journal.FILE, at), LIMIT, phase)
            up.stop("superlink", signal.SIGKILL)
            time.sleep(1)
            up.start_superlink()
        up.start_job(settings)
        until((again / "run.json").exists, LIMIT, "no run folder")
        for table in ("results.csv", "groups.csv"):
            found = (again / table).read_bytes().replace(b"again", b"whole")
            assert found == (whole / table).read_bytes()


def test_neighbours_are_added_up_though_the_coordinator_is_killed_amid_it(
    tmp_path: Path, linked_sites: Callable[..., Path]
) -> None:
    sites = linked_sites(tmp_path / "sites", ("ada", "bob", "cleo"))
    with running(tmp_path, sites) as up:
        out, ledger = tmp_path / "out", tmp_path / "out.job" / journal.FILE
        changes = {"methods": "fed+neighbours", "scores": "lac", "quantiles": "exact"}
        settings = settings_for(sites, out, **changes)
        up.start_job(settings)
        until(lambda: reached(ledger, "neighbours/matching"), LIMIT, "matching was not reached")
        up.stop("superlink", signal.SIGKILL)
        time.sleep(1)
        up.start_superlink()
        if not out.exists():
            up.start_job(settings)
        until((out / "run.json").exists, LIMIT, "no run folder")
    same = undisturbed(tmp_path, settings, linked_sites)
    received = json.loads((out / "run.json").read_text())["chosen_on_validation"]
    assert received == json.loads((same / "run.json").read_text())["chosen_on_validation"]
    assert min(received["fed+neighbours"]["received"][0]) > 0
    assert (out / "groups.csv").read_bytes() == (same / "groups.csv").read_bytes()
    assert set_bytes(sites) == set_bytes(tmp_path / "same")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Three network namespaces, each with a cable to a bridge of this machine."""
    names = [f"fc{os.getpid() % 10000}-{k}" for k in range(3)]
    bridge = f"fcb{os.getpid() % 10000}"
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the command ip")
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", "10.213.0.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for k, name in enumerate(names):
            _ip("netns", "add", name)
            _ip("link", "add", f"{name}h", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"{name}h", "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"10.213.0.{k + 2}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine allows no network namespaces: {error.stderr.decode().strip()}")
    try:
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


@pytest.mark.parametrize("seconds", [5, 60])
def test_a_site_behind_a_cut_cable_comes_back(
    seconds: int, namespaces: list[str], tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    sites = toy_sites(tmp_path / "sites", ("ada", "bob", "cleo"))
    with LocalFederation(tmp_path / "processes", site_folders(sites), "10.213.0.1") as up:
        up.start_superlink()
        for site, name in zip(up.sites, namespaces, strict=True):
            up.register(site)
            up.start_site(site, ["ip", "netns", "exec", name])
        out = tmp_path / "out"
        up.start_job(
            settings_for(
                sites, out, methods="fed", scores="lac", rounds=120, patience=120, timeout=15.0
            )
        )
        ledger = tmp_path / "out.job" / journal.FILE
        until(lambda: reached(ledger, "fed/shared"), LIMIT, "training was not reached")
        _ip("-n", namespaces[1], "link", "set", "eth0", "down")
        time.sleep(seconds)
        _ip("-n", namespaces[1], "link", "set", "eth0", "up")
        until(lambda: (out / "run.json").exists() or bool(failed(out)), 2 * LIMIT, "it hangs")
        federation = json.loads((out / "run.json").read_text())["federation"]
        answered = federation["answered"]["fed/shared"]
        without = sum(1 not in round_ for round_ in answered)
        print(f"\ncut for {seconds} s: {without} of {len(answered)} rounds without it")
        assert 1 in answered[-1]  # it is there again
        assert without > 0 or seconds < 15
        check_sets(sites, out)


@pytest.mark.parametrize("count", [3, 10])
def test_where_the_seconds_of_a_round_go(
    count: int, tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    names = tuple(f"site-{k:02d}" for k in range(count))
    toy_sites(tmp_path / "sites", names)
    with running(tmp_path, tmp_path / "sites") as up:
        out = tmp_path / "out"
        settings = settings_for(
            tmp_path / "sites", out, methods="fed", scores="lac", rounds=30, sites=count, join=400.0
        )
        up.start_job(settings)
        until((out / "run.json").exists, 3 * LIMIT, "no run folder")
        federation = json.loads((out / "run.json").read_text())["federation"]
        rounds = len(federation["answered"]["fed/shared"])
        causes = {k: round(v / rounds, 3) for k, v in federation["seconds"]["fed/shared"].items()}
        print(f"\n{count} sites, {rounds} rounds, seconds a round: {causes}")
        assert set(causes) == {"start-up", "training", "transfer", "waiting"}
