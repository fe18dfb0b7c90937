"""One command to see it work: a federation of processes on this machine (``make federation``)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedcover.carriers.network.coordinate import FAILURE, job_folder
from fedcover.carriers.network.flower.local import LocalFederation
from fedcover.carriers.network.flower.settings import job_from
from fedcover.carriers.network.journal import FILE
from fedcover.carriers.network.messages import Place
from fedcover.config import Config
from fedcover.errors import DataError, UsageError
from fedcover.graphs import load
from fedcover.graphs.check import check_graph
from fedcover.graphs.partition import partition
from fedcover.graphs.sites import SCHEMA_FILE, site_folders, write_sites
from fedcover.party.data import cut_parties, gathered
from fedcover.run_folder import check_target

JOIN = 120.0  # seconds until every site must be there
LIMIT = 3600.0  # seconds until the whole job must be done
MARKS = {"sites": SCHEMA_FILE, "processes": "superlink.log"}  # what only a trial's folder holds


def trial(
    graph: str,
    clients: int,
    settings: Mapping[str, Any],
    out: Path,
    *,
    data: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Cut the graph into sites, start everything, run the job, stop everything.

    ``settings`` are those of the job, by the names of options.
    ``OUT-sites`` holds the parties' folders, with their sets and ledgers; ``OUT-processes`` the
    logs, the certificates and the keys.
    """
    tell = say or (lambda _sentence: None)
    told = {"sites": clients, "least": max(clients - 1, 1), "join": JOIN}
    told |= {name.replace("_", "-"): value for name, value in settings.items()}
    job_from(told)  # what is wrong is said before anything is started
    check_target(out)
    out = out.resolve()
    places = {kind: out.with_name(f"{out.name}-{kind}") for kind in MARKS}
    for kind, place in places.items():
        _clear(place, MARKS[kind])
    loaded = check_graph(load(graph, data))
    parts = partition(loaded, clients)
    cut = cut_parties(loaded, parts, Config(clients=clients), seed=0)
    roles = gathered(parts, [party.roles for party in cut])
    write_sites(places["sites"], loaded, parts, roles)
    folders = site_folders(places["sites"])
    tell(f"{places['sites']}: {', '.join(f.name for f in folders)}")
    before = _stamp(out)
    with LocalFederation(places["processes"], folders) as federation:
        federation.start_superlink()
        tell(f"SuperLink on port {federation.port}, with TLS; only registered sites may connect")
        for folder in folders:
            federation.register(folder)
            federation.start_site(folder)
        tell(f"{len(folders)} SuperNodes started, each with a key of its own")
        federation.start_job({**told, "schema": places["sites"] / SCHEMA_FILE, "out": out})
        _follow(federation, out, before, tell)
    tell("all processes are stopped")
    return out


def _clear(place: Path, mark: str) -> None:
    """Delete what an earlier trial left, and nothing else."""
    if place.exists() and any(place.iterdir()) and not (place / mark).exists():
        raise UsageError(f"{place} exists and is not of an earlier trial; choose another --out.")
    shutil.rmtree(place, ignore_errors=True)


def _stamp(out: Path) -> float:
    mark = out / "run.json"
    return mark.stat().st_mtime if mark.exists() else 0.0


def _follow(
    federation: LocalFederation, out: Path, before: float, tell: Callable[[str], None]
) -> None:
    """Say how far the job is, until the run folder stands or the job has failed."""
    beside, end, said = job_folder(out), time.monotonic() + LIMIT, ""
    while time.monotonic() < end:
        if _stamp(out) > before:
            return
        if (beside / FAILURE).exists():
            raise DataError((beside / FAILURE).read_text(encoding="utf-8").strip())
        if federation.processes["superlink"].poll() is not None:
            raise DataError(f"the SuperLink has stopped; see {federation.folder}.")
        phase = _phase(beside / FILE)
        if phase != said:
            tell(phase)
            said = phase
        time.sleep(0.2)
    raise DataError(f"the job was not done after {LIMIT:.0f} s; see {federation.folder}.")


def _phase(ledger: Path) -> str:
    """What the coordinator's ledger speaks of last."""
    if not ledger.exists():
        return ""
    with ledger.open("rb") as file:
        file.seek(max(ledger.stat().st_size - 4096, 0))
        lines = file.read().decode(errors="replace").splitlines()
    try:
        row = json.loads(lines[-1])
        return Place(*(row[key] for key in Place._fields)).phase
    except (ValueError, IndexError, KeyError):
        return ""
