"""The coordinator's run folder: counts and averages over the sites, and no node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedcover import __version__
from fedcover.algorithm.calibrate import Case, Thresholds, cases_of
from fedcover.algorithm.session import Outcome
from fedcover.carriers.network import journal
from fedcover.carriers.network.coordinator import Coordinator, Outcomes
from fedcover.carriers.network.record import sentences
from fedcover.graphs.schema import Schema
from fedcover.party.calibration import TALLIED
from fedcover.privacy import spending
from fedcover.report.page import write_run_page
from fedcover.run_folder import hardware, versions, write_run
from fedcover.tables import (
    GROUPS,
    LEDGER,
    RESULTS,
    SETS,
    THRESHOLDS,
    frame,
    ledger_frame,
)


def write_outcome(
    folder: Path, coordinator: Coordinator, schema: Schema, outcomes: Outcomes, ledger: Path
) -> Path:
    """Write the run folder whole; ``ledger`` is the coordinator's own."""
    name, job, sites = folder.name, coordinator.job, coordinator.sites
    census, record, config = coordinator.census, coordinator.record, job.config
    own = None
    if config.calibrate != "pooled":
        own = frame(_threshold_rows(coordinator, schema, outcomes), THRESHOLDS)
    gen = any(method.startswith("gen") for method in config.methods)
    spent = spending(config.privacy) if config.privacy is not None and gen else None
    return write_run(
        folder,
        results=frame(_results(name, coordinator, outcomes), RESULTS),
        groups=frame(_groups(coordinator, outcomes), GROUPS),
        sets=pl.DataFrame(schema=SETS),
        ledger=_ledger(coordinator, outcomes, ledger),
        thresholds=own,
        info={
            "fedcover": __version__,
            "graph": {
                "name": name,
                "nodes": sum(census.of("nodes").values()),
                "features": len(schema.feature_names),
                "labels": len(schema.labels),
                "label_names": list(schema.labels),
                "schema": schema.fingerprint,
            },
            "config": asdict(config),
            "seeds": list(outcomes),
            "federation": {
                "sites": {site: dict(census.counts[k]) for k, site in enumerate(sites)},
                "least": job.least,
                "average": job.average,
                "answered": {p: list(map(list, a)) for p, a in record.answered.items()},
                "seconds": {
                    phase: {cause: round(seconds, 3) for cause, seconds in causes.items()}
                    for phase, causes in record.seconds.items()
                },
            },
            "chosen_on_validation": _chosen(outcomes),
            "privacy": asdict(spent) if spent else None,
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


def _cases(
    coordinator: Coordinator, outcome: Outcome
) -> Iterator[tuple[int, dict[str, Any], Thresholds]]:
    cases: list[Case] = cases_of(coordinator.job.config)
    for k, (case, found) in enumerate(zip(cases, outcome.calibrated.thresholds, strict=True)):
        yield k, dict(zip(("score", "quantile", "alpha"), case, strict=True)), found


def notes(coordinator: Coordinator, outcomes: Outcomes) -> list[str]:
    """What whoever reads the numbers must know: who was missing, what was refused."""
    sites, found = coordinator.sites, dict[str, None]()  # each once, in order
    for method, seed, outcome in _each(outcomes):
        result = outcome.calibrated
        place = method if len(outcomes) == 1 else f"seed {seed}, {method}"
        absent = [sites[k] for k in sorted(coordinator.census.parties - result.parties)]
        if absent:
            there = [sites[k] for k in sorted(result.parties)]
            found[
                f"{place}: {', '.join(absent)} missed the calibration and made no sets; the "
                f"guarantee is for {', '.join(there)}, as K = {len(there)} sites."
            ] = None
        silent = result.parties - result.tallies.keys()
        if silent:
            names = ", ".join(sites[k] for k in sorted(silent))
            found[
                f"{place}: {names} did not say what its sets hold; the numbers are without it."
            ] = None
        found |= dict.fromkeys(outcome.notes)
        for _, case, threshold in _cases(coordinator, outcome):
            if threshold.pooled.note:
                about = f"{place}, {case['score']}, quantile {case['quantile']}"
                found[f"{about}: {threshold.pooled.note}"] = None
    return [*found, *sentences(coordinator.record.refused)]


def _results(name: str, coordinator: Coordinator, outcomes: Outcomes) -> Iterator[dict[str, Any]]:
    config = coordinator.job.config
    for method, seed, outcome in _each(outcomes):
        result, tally = outcome.calibrated, _total(coordinator, outcome)
        tests = max(int(tally[0, 0]), 1)
        for k, case, threshold in _cases(coordinator, outcome):
            test, covered, labels, singletons, empty = tally[k].tolist()
            by_site = [own[k, 1] / own[k, 0] for own in result.tallies.values() if own[k, 0]]
            pooled = config.calibrate == "pooled"
            yield {
                "dataset": name,
                "clients": len(result.parties),
                "partition": "sites",
                "method": method,
                "model": outcome.recipe.method.model or config.model,
                **case,
                "seed": seed,
                "n_calibration": threshold.pooled.n_calibration,
                "n_test": test,
                "q_hat": threshold.pooled.q_hat if pooled else None,
                "coverage": covered / tests,
                "set_size": labels / tests,
                "singleton_rate": singletons / tests,
                "empty_rate": empty / tests,
                "min_client_coverage": min(by_site, default=None),
                "class_coverage_gap": None,
                "accuracy": sum(result.correct.values()) / tests,
                "train_seconds": None,
            }


def _total(coordinator: Coordinator, outcome: Outcome) -> NDArray[np.int64]:
    """The counts of all sites together."""
    none = np.zeros((len(cases_of(coordinator.job.config)), len(TALLIED)), np.int64)
    return sum(outcome.calibrated.tallies.values(), none)


def _groups(coordinator: Coordinator, outcomes: Outcomes) -> Iterator[dict[str, Any]]:
    for method, seed, outcome in _each(outcomes):
        tallies = outcome.calibrated.tallies
        kinds = [("all", "all", _total(coordinator, outcome))]
        kinds += [("client", coordinator.sites[k], own) for k, own in tallies.items()]
        for k, case, _ in _cases(coordinator, outcome):
            for kind, group, tally in kinds:
                test, covered, labels = tally[k, :3].tolist()
                if test:
                    yield {
                        "method": method,
                        **case,
                        "seed": seed,
                        "kind": kind,
                        "group": group,
                        "n_test": float(test),
                        "coverage": covered / test,
                        "coverage_sd": None,
                        "set_size": labels / test,
                        "set_size_sd": None,
                    }


def _threshold_rows(
    coordinator: Coordinator, schema: Schema, outcomes: Outcomes
) -> Iterator[dict[str, Any]]:
    """Those of clients, classes or groups, where they have their own."""
    kind = coordinator.job.config.calibrate
    names = schema.labels if kind == "class" else coordinator.groups
    for method, seed, outcome in _each(outcomes):
        for _, case, found in _cases(coordinator, outcome):
            for name, own in zip(names, found.groups, strict=True):
                yield {
                    "method": method,
                    **case,
                    "seed": seed,
                    "kind": kind,
                    "group": name,
                    "n_calibration": own.n_calibration,
                    "clients": own.clients,
                    "q_hat": own.q_hat,
                    "fell_back": own.fell_back,
                }


def _chosen(outcomes: Outcomes) -> dict[str, dict[str, list[Any]]]:
    """By method and choice: one value a seed."""
    found: dict[str, dict[str, list[Any]]] = {}
    for method, _, outcome in _each(outcomes):
        result = outcome.calibrated
        choices = {
            "temperature": result.temperature,
            "raps": result.raps._asdict() if result.raps else None,
            **{name: chosen._asdict() for name, chosen in result.diffusion.items()},
            **outcome.chosen,
        }
        for choice, value in choices.items():
            found.setdefault(method, {}).setdefault(choice, []).append(value)
    return found


def _ledger(coordinator: Coordinator, outcomes: Outcomes, path: Path) -> pl.DataFrame:
    """What each method needed, as a simulation writes it."""
    sites = coordinator.sites
    ledgers = journal.ledgers(journal.read(path), sites, list(outcomes))
    frames = [pl.DataFrame(schema=LEDGER)]
    for method, seed, outcome in _each(outcomes):
        entries = ledgers[seed].of(method, outcome.parts)
        frames.append(ledger_frame(method, seed, sites, entries))
    return pl.concat(frames)
