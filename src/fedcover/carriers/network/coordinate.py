"""A coordinator's whole job: lead it, go on after a crash, write the run folder."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path

from fedcover.carriers.network.checkpoint import Checkpoint
from fedcover.carriers.network.coordinator import Coordinator, OnRound, Transport
from fedcover.carriers.network.job import Job
from fedcover.carriers.network.journal import FILE, Journal
from fedcover.carriers.network.outcome import write_outcome
from fedcover.errors import DataError, FedcoverError
from fedcover.files import write_whole
from fedcover.graphs.schema import Schema
from fedcover.run_folder import check_target

FAILURE = "failed.txt"
"""Why a job has ended without a run folder, for whoever waits for it."""

_log = getLogger(__name__)


@dataclass(frozen=True)
class Assignment:
    """What is to be done, and where the run folder goes."""

    job: Job
    schema: Schema
    out: Path

    @property
    def beside(self) -> Path:
        """What a coordinator that is started again needs; gone when the run folder stands."""
        return job_folder(self.out)


def job_folder(out: Path) -> Path:
    """Where a job keeps what it needs to go on, beside its run folder."""
    return out.parent / f"{out.name}.job"


def coordinate(
    assignment: Assignment, transport: Transport, on_round: OnRound | None = None
) -> Path:
    """Lead the job over this transport; the run folder that it wrote."""
    job, schema, out = assignment.job, assignment.schema, assignment.out
    check_target(out)
    ledger = assignment.beside / FILE
    coordinator = Coordinator(
        job,
        schema,
        transport,
        Checkpoint(assignment.beside),
        Journal(ledger),
        on_round or _say,
    )
    failure = assignment.beside / FAILURE
    failure.unlink(missing_ok=True)
    try:
        outcomes = coordinator.run()
        write_outcome(out, coordinator, schema, outcomes, ledger)
    except (FedcoverError, OSError) as error:
        said = error if isinstance(error, FedcoverError) else _explained(error, assignment.beside)
        _leave(failure, str(said))
        raise said from error
    except Exception as error:  # whoever waits for the job must hear of it
        _leave(failure, f"it failed in a way that nobody foresaw: {type(error).__name__}: {error}")
        raise
    shutil.rmtree(assignment.beside, ignore_errors=True)
    _log.info("%s is written", out)
    return out


def _leave(failure: Path, sentence: str) -> None:
    with suppress(OSError):
        write_whole(failure, f"{sentence}\n".encode())


def _explained(error: OSError, place: Path) -> DataError:
    return DataError(
        f"{error.filename or place}: {error.strerror or error}; mend it and start the job again to "
        "go on."
    )


def _say(phase: str, round_: int, answered: int, sites: int) -> None:
    _log.info("%s, round %d: %d of %d sites", phase, round_, answered, sites)
