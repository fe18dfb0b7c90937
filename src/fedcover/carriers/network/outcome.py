"""The coordinator's run folder: counts and averages over the sites, and no node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover import __version__
from fedcover.config import recipe_of
from fedcover.graphs.schema import Schema
from fedcover.carriers.network import journal
from fedcover.carriers.network.conduct import TALLIED, MethodOutcome, Roster
from fedcover.carriers.network.job import Job
from fedcover.carriers.network.record import Record, sentences
from fedcover.report.page import write_run_page
from fedcover.simulation.frames import GROUPS, LEDGER, RESULTS, SETS, frame
from fedcover.run.methods import METHODS
from fedcover.simulation.run import hardware, versions
from fedcover.simulation.store import write_run

Outcomes = Mapping[str, MethodOutcome]


def write_outcome(
    folder: Path,
    job: Job,
    schema: Schema,
    roster: Roster,
    outcomes: Outcomes,
    record: Record,
    ledger: Path,
) -> Path:
    """Write the run folder whole; ``ledger`` is the coordinator's own."""
    name = folder.name
    return write_run(
        folder,
        results=frame(_results(name, job, outcomes), RESULTS),
        groups=frame(_groups(job, roster, outcomes), GROUPS),
        sets=pl.DataFrame(schema=SETS),
        ledger=ledger_rows(ledger, job.seed),
        info={
            "fedcover": __version__,
            "graph": {
                "name": name,
                "nodes": sum(roster.of("nodes").values()),
                "features": len(schema.feature_names),
                "labels": len(schema.labels),
                "label_names": list(schema.labels),
                "schema": schema.fingerprint,
            },
            "config": asdict(job.config),
            "seeds": [job.seed],
            "federation": {
                "sites": {site: dict(roster.counts[k]) for k, site in enumerate(roster.names)},
                "least": job.least,
                "average": job.average,
                "answered": {p: list(map(list, a)) for p, a in record.answered.items()},
                "seconds": {
                    phase: {cause: round(seconds, 3) for cause, seconds in causes.items()}
                    for phase, causes in record.seconds.items()
                },
            },
            "chosen_on_validation": {
                method: {key: [value] for key, value in outcome.chosen.items()}
                for method, outcome in outcomes.items()
            },
            "notes": notes(job, roster, outcomes, record),
            "versions": versions(),
            "hardware": hardware(),
        },
        finish=write_run_page,
        copies={journal.FILE: ledger},
    )


def notes(job: Job, roster: Roster, outcomes: Outcomes, record: Record) -> list[str]:
    """What whoever reads the numbers must know: who was missing, what was refused."""
    found = []
    for method, outcome in outcomes.items():
        absent = [roster.names[k] for k in sorted(roster.numbers - outcome.calibrated)]
        if absent:
            there = [roster.names[k] for k in sorted(outcome.calibrated)]
            found.append(
                f"{method}: {', '.join(absent)} missed the calibration and made no sets; the "
                f"guarantee is for {', '.join(there)}, as K = {len(there)} sites."
            )
        silent = outcome.calibrated - outcome.tallies.keys()
        if silent:
            names = ", ".join(roster.names[k] for k in sorted(silent))
            found.append(
                f"{method}: {names} did not say what its sets hold; the numbers are without it."
            )
        for (score, rule, _), threshold in zip(job.cases, outcome.thresholds, strict=True):
            if threshold.note:
                found.append(f"{method}, {score}, quantile {rule}: {threshold.note}")
    return found + sentences(record.refused)


def _results(name: str, job: Job, outcomes: Outcomes) -> list[dict[str, Any]]:
    rows = []
    for method, outcome in outcomes.items():
        tally = _total(job, outcome)
        tests = max(int(tally[0, 0]), 1)
        for k, ((score, rule, alpha), threshold) in enumerate(
            zip(job.cases, outcome.thresholds, strict=True)
        ):
            test, covered, labels, singletons, empty = tally[k].tolist()
            by_site = [own[k, 1] / own[k, 0] for own in outcome.tallies.values() if own[k, 0]]
            rows.append(
                {
                    "dataset": name,
                    "clients": len(outcome.calibrated),
                    "partition": "sites",
                    "method": method,
                    "model": METHODS[recipe_of(method).base].model or job.config.model,
                    "score": score,
                    "quantile": rule,
                    "alpha": alpha,
                    "seed": job.seed,
                    "n_calibration": threshold.n_calibration,
                    "n_test": test,
                    "q_hat": threshold.q_hat,
                    "coverage": covered / tests,
                    "set_size": labels / tests,
                    "singleton_rate": singletons / tests,
                    "empty_rate": empty / tests,
                    "min_client_coverage": min(by_site, default=None),
                    "class_coverage_gap": None,
                    "accuracy": sum(outcome.correct.values()) / tests,
                    "train_seconds": None,
                }
            )
    return rows


def _total(job: Job, outcome: MethodOutcome) -> NDArray[np.int64]:
    """The counts of all sites together."""
    return sum(outcome.tallies.values(), np.zeros((len(job.cases), len(TALLIED)), np.int64))


def _groups(job: Job, roster: Roster, outcomes: Outcomes) -> list[dict[str, Any]]:
    rows = []
    for method, outcome in outcomes.items():
        sites = {roster.names[k]: own for k, own in outcome.tallies.items()}
        kinds = [
            ("all", "all", _total(job, outcome)),
            *(("client", name, own) for name, own in sites.items()),
        ]
        for k, (score, rule, alpha) in enumerate(job.cases):
            for kind, group, tally in kinds:
                test, covered, labels = tally[k, :3].tolist()
                if test:
                    rows.append(
                        {
                            "method": method,
                            "score": score,
                            "quantile": rule,
                            "alpha": alpha,
                            "seed": job.seed,
                            "kind": kind,
                            "group": group,
                            "n_test": float(test),
                            "coverage": covered / test,
                            "coverage_sd": None,
                            "set_size": labels / test,
                            "set_size_sd": None,
                        }
                    )
    return rows


def ledger_rows(path: Path, seed: int) -> pl.DataFrame:
    """The ledger as a table of a run folder."""
    rows = []
    for line in journal.read(path):
        method, _, step = line["phase"].rpartition("/")
        rows.append(
            {
                "method": method or "all",
                "seed": seed,
                "kind": f"{step}: {line['name']}" if line["name"] else step,
                "direction": line["direction"],
                "client": line["site"],
                "round": line["round"],
                "rounds": 1,
                "shape": line["shape"],
                "bytes": line["bytes"],
            }
        )
    return frame(rows, LEDGER)
