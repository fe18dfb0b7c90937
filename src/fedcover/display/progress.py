"""How far a command is: bars on a terminal, lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedcover.paper.work import OnCell
from fedcover.party.together import Progress as ProgressCall


@contextmanager
def progress(quiet: bool) -> Iterator[ProgressCall | None]:
    """A bar on a terminal, one line a finished stage elsewhere, nothing when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as bar:
            tasks: dict[str, int] = {}

            def show(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bar.add_task(stage, total=total)
                bar.update(tasks[stage], completed=done)  # type: ignore[arg-type]

            yield show
    else:

        def say(stage: str, done: int, total: int) -> None:
            # Only what is finished: a graph that a later seed cannot cut is refused in one line.
            if done == total:
                print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)

        yield say


@contextmanager
def grid_progress(quiet: bool) -> Iterator[OnCell | None]:
    """Cells done and the time that remains: a bar on a terminal, one line a cell elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        columns = (BarColumn(), TextColumn("{task.completed}/{task.total} cells"))
        said = TextColumn("{task.description}")
        with Progress(*columns, TimeElapsedColumn(), said, console=Console(stderr=True)) as bar:
            task = bar.add_task("")

            def show(done: int, total: int, left: float | None, name: str) -> None:
                text = f"{_left(left)}; last: {name}" if name else ""
                bar.update(task, completed=done, total=total, description=text)

            yield show
    else:

        def say(done: int, total: int, left: float | None, name: str) -> None:
            what = f"{name}; {_left(left)}" if name else "finished before"
            print(f"{done} of {total} cells: {what}", file=sys.stderr, flush=True)

        yield say


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes else f"about {seconds:.0f} s left"


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
