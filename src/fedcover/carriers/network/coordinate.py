"""A coordinator's whole job: lead it, go on after a crash, write the run folder.

The folder holds counts and averages over the sites, and no node.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from fedcover import __version__, tables
from fedcover.algorithm.session import Outcome
from fedcover.carriers.network import journal
from fedcover.carriers.network.coordinator import Coordinator, Outcomes
from fedcover.carriers.network.job import Assignment, job_folder
from fedcover.carriers.network.messages import Transport
from fedcover.errors import DataError, FedcoverError, UsageError
from fedcover.files import write_whole
from fedcover.plans import cases_of
from fedcover.privacy import spending
from fedcover.report.page import write_run_page
from fedcover.run_folder import check_target, hardware, versions, write_run
from fedcover.tables import RATES, frame

FAILURE = "failed.txt"  # why a job has ended without a run folder, for whoever waits for it

_log = getLogger(__name__)


def coordinate(assignment: Assignment, transport: Transport) -> Path:
    """Lead the job over this transport; the run folder that it wrote."""
    check_target(assignment.out)
    with the_only_job(assignment.out):
        return _coordinate(assignment, transport)


@contextmanager
def the_only_job(out: Path) -> Iterator[None]:
    """Refuse to begin while another process leads a job to this run folder."""
    beside = job_folder(out)
    try:
        beside.mkdir(parents=True, exist_ok=True)
        lock = FileLock(beside / "lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"another job is writing {out}; wait for it, or choose another folder."
        ) from None
    except OSError as error:
        raise DataError(f"{error.filename or beside}: {error.strerror or error}.") from error
    with lock:
        yield


def _coordinate(assignment: Assignment, transport: Transport) -> Path:
    out, beside = assignment.out, assignment.beside
    coordinator = Coordinator(assignment.job, assignment.schema, transport, beside)
    failure = beside / FAILURE
    failure.unlink(missing_ok=True)
    try:
        _write(out, coordinator, coordinator.run(), beside / journal.FILE)
    except Exception as error:  # whoever waits for the job must hear of it
        said = str(error)
        if isinstance(error, OSError):
            said = f"{error.filename or beside}: {error.strerror or error}; mend it and start the "
            said += "job again to go on."
        elif not isinstance(error, FedcoverError):
            said = f"it failed in a way that nobody foresaw: {type(error).__name__}: {error}"
        with suppress(OSError):
            write_whole(failure, f"{said}\n".encode())
        if isinstance(error, OSError):
            raise DataError(said) from error
        raise
    shutil.rmtree(beside, ignore_errors=True)
    _log.info("%s is written", out)
    return out


def _write(folder: Path, coordinator: Coordinator, outcomes: Outcomes, ledger: Path) -> None:
    """Write the run folder whole; ``ledger`` is the coordinator's own."""
    job, schema, census = coordinator.job, coordinator.schema, coordinator.census
    config, record = job.config, coordinator.record
    gen = any(method.startswith("gen") for method in config.methods)
    spent = asdict(spending(config.privacy)) if config.privacy is not None and gen else None
    write_run(
        folder,
        **_tables(folder.name, coordinator, outcomes),
        sets=pl.DataFrame(schema=tables.SETS),
        ledger=_ledger(coordinator, outcomes, ledger),
        info={
            "fedcover": __version__,
            "graph": {
                "name": folder.name,
                "nodes": sum(census.of("nodes").values()),
                "unlabelled": sum(census.of("unlabelled").values()),
                "features": len(schema.feature_names),
                "labels": len(schema.labels),
                "label_names": schema.labels,
                "schema": schema.fingerprint,
            },
            "config": asdict(config),
            "seeds": list(outcomes),
            "federation": {
                "sites": dict(zip(coordinator.sites, census.counts.values(), strict=True)),
                "least": job.least,
                "average": job.average,
                "answered": record.answered,
                "seconds": {
                    phase: {cause: round(seconds, 3) for cause, seconds in causes.items()}
                    for phase, causes in record.seconds.items()
                },
            },
            "chosen_on_validation": _chosen(outcomes),
            "left_out": _left_out(coordinator, outcomes),
            "privacy": spent,
            "notes": notes(coordinator, outcomes),
            "versions": versions(),
            "hardware": hardware(),
        },
        finish=write_run_page,
        copies={journal.FILE: ledger},
    )


def _each(outcomes: Outcomes) -> Iterator[tuple[str, int, Outcome]]:
    """Method by method, and of each the seeds."""
    for method in next(iter(outcomes.values())):
        for seed, found in outcomes.items():
            yield method, seed, found[method]


def notes(coordinator: Coordinator, outcomes: Outcomes) -> list[str]:
    """What whoever reads the numbers must know: who was missing, what was refused."""
    found: list[str] = []

    def named(sites: frozenset[int]) -> str:
        return ", ".join(coordinator.sites[k] for k in sorted(sites))

    def place(method: str, seed: int) -> str:
        return method if len(outcomes) == 1 else f"seed {seed}, {method}"

    for method, seed, outcome in _each(outcomes):
        there, about = outcome.calibrated.parties, place(method, seed)
        if absent := coordinator.census.parties - there:
            found.append(
                f"{about}: {named(absent)} missed the calibration and made no sets; the "
                f"guarantee is for {named(there)}, as K = {len(there)} sites."
            )
        if silent := there - outcome.calibrated.tallies.keys():
            found.append(
                f"{about}: {named(silent)} did not say what its sets hold; the numbers are "
                "without it."
            )
        found += [*outcome.notes, *(f"{about}: {one}" for one in outcome.calibrated.notes)]
    for method, seed, outcome in _each(outcomes):
        cases = zip(cases_of(coordinator.job.config), outcome.calibrated.thresholds, strict=True)
        for (score, rule, _), threshold in cases:
            if note := threshold.pooled.note:
                found.append(f"{place(method, seed)}, {score}, quantile {rule}: {note}")
    record = coordinator.record
    found = [*dict.fromkeys(found), *journal.sentences(record.refused)]
    if record.unclosed:
        unclosed = ", ".join(record.unclosed)
        found.append(f"{unclosed} did not report the hash of its ledger when the job ended.")
    return found


def _tables(name: str, coordinator: Coordinator, outcomes: Outcomes) -> dict[str, Any]:
    """Results, groups, and thresholds of groups: rows for every method, seed and case."""
    results, groups, thresholds = [], [], []
    config, sites, census = coordinator.job.config, coordinator.sites, coordinator.census
    own_names = coordinator.schema.labels if config.calibrate == "class" else coordinator.groups
    for method, seed, outcome in _each(outcomes):
        result = outcome.calibrated
        cases = zip(cases_of(config), result.thresholds, strict=True)
        for k, (case, threshold) in enumerate(cases):
            key = dict(zip(tables.KEY, (method, *case, seed), strict=True))
            by_site = {sites[party]: own[k] for party, own in result.tallies.items()}
            whole = np.sum(list(by_site.values()), axis=0)
            rates = [_rates(counts, census.tested)["coverage"] for counts in by_site.values()]
            coverages = [coverage for coverage in rates if coverage is not None]
            judged = census.of("test" if census.tested else "calib")
            labelled = sum(judged[party] for party in result.correct)
            results.append(
                {
                    **key,
                    "dataset": name,
                    "clients": len(result.parties),
                    "partition": "sites",
                    "model": outcome.recipe.method.model or config.model,
                    "n_calibration": threshold.pooled.n_calibration,
                    "q_hat": threshold.pooled.q_hat if config.calibrate == "pooled" else None,
                    "n_test": int(whole[0]) if census.tested else 0,
                    **_rates(whole, census.tested),
                    tables.SPLIT: float(whole[1] / whole[0]) if census.tested else None,
                    "min_client_coverage": min(coverages, default=None),
                    "accuracy": sum(result.correct.values()) / max(labelled, 1),
                }
            )
            clients = [("client", site, counts) for site, counts in by_site.items()]
            for kind, group, counts in [("all", "all", whole), *clients]:
                if counts[0]:
                    own_rates = _rates(counts, census.tested)
                    named = {**key, "kind": kind, "group": group, "n_test": float(counts[0])}
                    groups.append(named | {name: own_rates[name] for name in RATES[:2]})
            for group, own in zip(own_names, threshold.groups, strict=True):
                thresholds.append({**key, "kind": config.calibrate, "group": group, **vars(own)})
    found = {"results": frame(results, tables.RESULTS), "groups": frame(groups, tables.GROUPS)}
    grouped = config.calibrate != "pooled"
    return found | ({"thresholds": frame(thresholds, tables.THRESHOLDS)} if grouped else {})


def _rates(counts: NDArray[np.int64], tested: bool) -> dict[str, float | None]:
    """Means over the nodes that were counted; nobody knows what sets of nodes without a label
    cover."""
    rates: dict[str, float | None] = dict.fromkeys(RATES)
    if counts[0]:
        rates |= dict(zip(RATES, (counts[1:] / counts[0]).tolist(), strict=True))
    return rates if tested else rates | {"coverage": None}


def _chosen(outcomes: Outcomes) -> dict[str, dict[str, list[Any]]]:
    """By method and choice: one value a seed."""
    found: dict[str, dict[str, list[Any]]] = {}
    for method, _, outcome in _each(outcomes):
        for choice, value in outcome.choices.items():
            found.setdefault(method, {}).setdefault(choice, []).append(value)
    return found


def _left_out(coordinator: Coordinator, outcomes: Outcomes) -> dict[str, list[list[str]]]:
    """By method, then a seed's: the sites whose scores did not count."""
    found: dict[str, list[list[str]]] = {}
    for method, _, outcome in _each(outcomes):
        if apart := sorted(outcome.calibrated.left_out):
            found.setdefault(method, []).append([coordinator.sites[k] for k in apart])
    return found


def _ledger(coordinator: Coordinator, outcomes: Outcomes, path: Path) -> pl.DataFrame:
    """What each method needed, as a simulation writes it."""
    sites = coordinator.sites
    ledgers = journal.ledgers(path, sites, list(outcomes))
    frames = (
        tables.ledger_frame(method, seed, sites, ledgers[seed].of(method, outcome.parts))
        for method, seed, outcome in _each(outcomes)
    )
    return pl.concat([pl.DataFrame(schema=tables.LEDGER), *frames])
