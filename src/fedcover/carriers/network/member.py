"""A party: it answers every order, writes its ledger, and says in a sentence what it cannot do."""

import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from logging import getLogger
from pathlib import Path

from fedcover.carriers.network import journal
from fedcover.carriers.network.checkpoint import Checkpoint
from fedcover.carriers.network.messages import Order, Reply
from fedcover.carriers.network.site_job import MIN_FAR_ENDS, SiteJob
from fedcover.errors import DataError, FedcoverError, UsageError

_log = getLogger(__name__)

MEMORY = ".fedcover"
REMEMBERED = 5  # jobs that a site could still go on with
JOB = re.compile("[0-9a-f]{4,64}")


def _without_values(sentence: str) -> str:
    """An error with its place, and without the values there, which are the site's own.

    It leaves out all from the first quotation that is not a column's name to the last quotation
    mark, since a value may have such marks in it.
    """
    named = re.match(r"""(?:[^'"]*column '[^']*')*[^'"]*""", sentence)
    start = named.end() if named else 0
    end = max(sentence.rfind(mark) for mark in "'\"") + 1
    return f"{sentence[:start]}(a value){sentence[end:]}" if end > start else sentence


class Member:
    """One party. ``data`` is its folder; ``work`` holds its memory, its ledger and its sets.

    It takes part in no job whose sums may be of fewer than ``least_far_ends`` nodes.
    """

    def __init__(
        self,
        data: Path,
        work: Path | None = None,
        name: str | None = None,
        least_far_ends: int = MIN_FAR_ENDS,
    ) -> None:
        self.name, self._least_far_ends = name or data.resolve().name, least_far_ends
        self._data, self._work = data, work or data
        self._ledger = self._work / journal.FILE
        self._under_way: SiteJob | None = None

    def answer(self, order: Order) -> Reply:
        """Do what is asked, and say so; what cannot be done is said in a sentence."""
        began = time.perf_counter()
        if self._under_way is not None:
            self._under_way.preparing = 0.0
        try:
            reply, problem = self._answer(order), ""
        except FedcoverError as error:
            _log.warning("%s: %s", ", ".join(place.part for place in order.places), error)
            problem = _without_values(str(error).replace(f"{self._data}/", ""))
        except OSError as error:  # a full disk, a folder that may not be written
            place = f"{Path(error.filename).name}: " if error.filename else ""
            problem = f"{place}{error.strerror or type(error).__name__}."
        except MemoryError:
            problem = "there is not enough memory."
        except (LookupError, ValueError, TypeError, RuntimeError) as error:
            _log.exception("an order could not be understood")
            problem = f"the order cannot be understood: {type(error).__name__}."
        if problem:  # it leaves the site as well, and stands in its ledger
            reply = Reply.to(order, problem=problem)
            with suppress(OSError):  # a full disk may be the reason
                if JOB.fullmatch(order.job):
                    journal.record(self._ledger, order.job, self.name, "up", reply.messages)
        preparing = 0.0 if self._under_way is None else self._under_way.preparing
        return replace(reply, seconds=time.perf_counter() - began, preparing=preparing)

    def _answer(self, order: Order) -> Reply:
        if not JOB.fullmatch(order.job):  # it becomes the name of a folder
            raise UsageError("a job must be called by hexadecimal digits.")
        if not order.items:
            raise UsageError("the order asks for nothing.")
        journal.record(self._ledger, order.job, self.name, "down", order.messages)
        job = self._current(order)
        if [place.verb for place in order.places] == ["close"]:
            reply = Reply.to(order, (job.close(self._ledger),))
        else:
            reply = Reply.to(order, job.answer(order))
        journal.record(self._ledger, order.job, self.name, "up", reply.messages)
        return reply

    def _current(self, order: Order) -> SiteJob:
        folder = self._work / MEMORY / order.job
        if self._under_way is None or self._under_way.job != order.job:
            if order.places[0].verb != "hello" and not folder.exists():
                raise DataError(f"the job {order.job} is not known here; it must say hello first.")
            memory = Checkpoint(folder)
            known = order.job, self.name, self._data, self._work, memory
            self._under_way = SiteJob(*known, least_far_ends=self._least_far_ends)
            # All but this job and the last few others are forgotten.
            others = [path for path in (self._work / MEMORY).glob("*") if path != folder]
            for path in sorted(others, key=lambda path: path.stat().st_mtime)[: 1 - REMEMBERED]:
                shutil.rmtree(path, ignore_errors=True)
        return self._under_way


class InProcess:
    """A transport to members in this process, asked one after another: for tests and trials."""

    transfer = 0.0

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = {member.name: member for member in members}

    def greet(self, order: Order, sites: int, seconds: float) -> dict[str, Reply]:  # noqa: ARG002
        """Everyone is here."""
        return {name: member.answer(order) for name, member in self._members.items()}

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:  # noqa: ARG002
        """Each member's reply."""
        for name, order in orders.items():
            yield name, self._members[name].answer(order)
