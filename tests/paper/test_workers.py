"""The grid survives what happens to processes: kills, company, a second start."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from fedcover.errors import DataError
from fedcover.paper import grid, workers
from fedcover.paper.definition import read_all
from fedcover.paper.store import Store, read_rows
from fedcover.paper.targets import produce, redraw
from fedcover.paper.workers import sample, verify


def command(folder, where, *more):
    words = ["paper", "all", "--definitions", folder, "--store", where / "store"]
    words += ["--out", where / "out", "--workers", "2", *more]
    return [sys.executable, "-m", "fedcover", *map(str, words)]


def tables(where):
    """Every file of the tables and figures; rows and provenance hold times."""
    kinds = (".md", ".tex", ".csv", ".svg", ".png")
    return {p.name: p.read_bytes() for p in sorted((where / "out").rglob("*")) if p.suffix in kinds}


@pytest.fixture(scope="module")
def undisturbed(folder, tmp_path_factory):
    where = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(command(folder, where), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return where, done


def test_progress_and_tables_are_shown(undisturbed):
    where, done = undisturbed
    assert "0 of 6 cells: finished before" in done.stderr
    assert "6 of 6 cells: " in done.stderr
    assert "left" in done.stderr
    assert "theorem1: coverage in the theorem's band" in done.stdout
    names = {p.name for p in (where / "out" / "default").iterdir()}
    assert {"sizes.md", "sizes.tex", "sizes.csv", "sizes.svg", "sizes.png", "sizes-short.md",
            "coverage.md", "rows.parquet", "about.json", "report.html"} <= names  # fmt: skip


def test_a_run_that_is_killed_three_times_ends_with_the_same_files(folder, undisturbed, tmp_path):
    rng, killed = random.Random(5), 0
    for finished in (0, 2, 4):  # cells of six: by progress, as no clock knows a machine's speed
        process = subprocess.Popen(command(folder, tmp_path, "--quiet"), start_new_session=True)
        while process.poll() is None and not has_come_to(finished, tmp_path):
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.3))
        killed += process.poll() is None
        process.kill()
        process.wait()
    assert killed >= 1
    last = subprocess.run(command(folder, tmp_path), capture_output=True, text=True, check=False)
    assert last.returncode == 0, last.stderr
    assert tables(tmp_path) == tables(undisturbed[0])


def has_come_to(finished, where):
    """Whether a run is at work on a cell and has finished so many."""
    store = where / "store"
    at_work = any((store / "locks").glob("*.lock"))
    return at_work and len(list(store.glob("*.parquet"))) >= finished


def cells_of(folder):
    return grid.cells(read_all(folder).values(), "default")


def test_a_finished_run_is_not_computed_again(folder, undisturbed):
    where, _ = undisturbed
    before = tables(where)
    stamps = {p: p.stat().st_mtime_ns for p in (where / "store").glob("*.parquet")}
    again = subprocess.run(command(folder, where), capture_output=True, text=True, check=True)
    assert "6 of 6 cells: finished before" in again.stderr
    assert tables(where) == before
    assert {p: p.stat().st_mtime_ns for p in (where / "store").glob("*.parquet")} == stamps


def test_two_runs_at_once_share_the_work(folder, undisturbed, tmp_path):
    both = [
        subprocess.Popen(
            command(folder, tmp_path, "--workers", "1"), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert tables(tmp_path) == tables(undisturbed[0])
    assert len(list((tmp_path / "store").glob("*.parquet"))) == 6


def test_workers_end_with_the_process_that_started_them(folder, tmp_path):
    process = subprocess.Popen(command(folder, tmp_path, "--quiet"), start_new_session=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and not has_come_to(0, tmp_path):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while time.monotonic() < end and members(process.pid):
        time.sleep(0.2)
    assert not members(process.pid)


def members(group):
    """Living processes of a process group."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def test_stored_rows_are_verified(folder, undisturbed):
    where, _ = undisturbed
    stored = read_rows(where / "out" / "default" / "rows.parquet")
    (cell,) = sample(cells_of(folder), stored, 1, seed=0)
    (again,) = verify([cell], stored)
    assert again.agrees
    assert (again.size, again.coverage) == (0.0, 0.0)
    import polars as pl

    (worse,) = verify([cell], stored.with_columns(pl.col("set_size") * 1.2 + 0.1))
    assert not worse.agrees
    assert worse.rows == again.rows > 0


def test_the_files_are_drawn_again_from_the_rows(folder, undisturbed, tmp_path):
    where, _ = undisturbed
    copy = tmp_path / "default"
    copy.mkdir()
    for name in ("rows.parquet", "about.json"):
        shutil.copy(where / "out" / "default" / name, copy / name)
    redraw(list(read_all(folder).values()), "default", out=copy)
    drawn = {p.name: p.read_bytes() for p in copy.iterdir()}
    for name, content in tables(where).items():
        assert drawn[name] == content, name
    page = (where / "out" / "default" / "report.html").read_bytes()
    assert drawn["report.html"] == page


def test_sources_that_change_under_a_run_stop_it(folder, tmp_path):
    (cell, *_) = cells_of(folder)
    with pytest.raises(DataError, match="sources have changed"):
        workers._compute(cell, tmp_path, None, "another code")


def test_a_target_that_is_added_keeps_the_rows_of_the_others(folder, undisturbed, tmp_path):
    where, _ = undisturbed
    known = read_all(folder)
    everything, store = list(known.values()), Store(where / "store")
    produce([known["coverage"]], everything, "default", store=store, out=tmp_path)
    few = read_rows(tmp_path / "rows.parquet")
    produce([known["sizes"]], everything, "default", store=store, out=tmp_path)
    assert read_rows(tmp_path / "rows.parquet").height > few.height
    whole = read_rows(where / "out" / "default" / "rows.parquet")
    key = ["cell", "score", "quantile", "alpha", "seed"]
    assert read_rows(tmp_path / "rows.parquet").sort(key).equals(whole.sort(key))
