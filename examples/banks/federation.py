"""Train over a network: every bank a process with its own folder, and a coordinator that has none.

All of them run on this machine, and are stopped at the end. Each bank has a key of its own, talks
over TLS, and keeps its sets and its ledger in its folder. Between machines the same commands are
typed by hand: docs/deployment.md.

    python examples/banks/federation.py banks
    python examples/banks/federation.py banks --methods fed+neighbours+prox+prior+mix
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from fedcover.carriers.network.coordinate import FAILURE
from fedcover.carriers.network.flower.local import LocalFederation
from fedcover.carriers.network.job import job_folder
from fedcover.display import answers, terminal
from fedcover.graphs.sites import SCHEMA_FILE, site_folders

LIMIT = 1800  # seconds for the whole job


def federation(folder: Path, out: Path, settings: dict[str, Any]) -> None:
    """Run a job over the banks in ``folder``; ``out`` is the coordinator's run folder."""
    parties, out = site_folders(folder), out.resolve()
    with LocalFederation(out.with_name(f"{out.name}-processes"), parties) as running:
        running.start_superlink()
        for party in parties:
            running.register(party)
            running.start_site(party)
        agreed = parties[0].resolve() / SCHEMA_FILE
        sites = {"sites": len(parties), "least": len(parties) - 1}
        running.start_job({"schema": agreed, "out": out, **sites, **settings})
        end = time.monotonic() + LIMIT
        while not (out / "run.json").exists():
            failure = job_folder(out) / FAILURE
            if failure.exists():
                raise SystemExit(failure.read_text(encoding="utf-8"))
            if time.monotonic() > end:
                raise SystemExit(f"not done after {LIMIT} seconds; see {running.folder}")
            time.sleep(0.5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/banks-network"))
    parser.add_argument("--methods", default="fed+neighbours")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists; choose another --out.")
    settings = {"methods": options.methods, "rounds": options.rounds}
    federation(options.folder, options.out, {**settings, "model": "sage", "alphas": "0.1"})
    answers.federation(terminal.console(), options.out)
