"""A terminal: tables on stdout; progress on stderr, bars on a terminal and lines elsewhere."""

import logging
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedcover.paper.workers import OnCell
from fedcover.training.plan import Progress as ProgressCall

UNBOUNDED = 100_000  # characters: wider than any table


def console() -> Console:
    """Standard output; a pipe is given room for the widest table."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    words: Container[int] = (0,),
    no_wrap: bool = False,
    **looks: Any,
) -> Table:
    """Numbers to the right, the columns of ``words`` to the left; whole numbers get commas.

    Texts are printed as they stand: no markup and no emoji code in a graph's name is obeyed.
    """
    looks.setdefault("box", box.SIMPLE_HEAD)
    made = Table(title=None if title is None else Text(title), title_justify="left", **looks)
    for number, heading in enumerate(headings):
        side = "left" if number in words else "right"
        made.add_column(Text(heading), justify=side, no_wrap=no_wrap)  # type: ignore[arg-type]
    for row in rows:
        made.add_row(*(Text(f"{one:,}" if isinstance(one, int) else str(one)) for one in row))
    return made


def number(value: float | None, digits: int) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def with_spread(mean: float | None, sd: float | None, digits: int = 2) -> str:
    """A mean ± its deviation, if that is known."""
    return number(mean, digits) + ("" if sd is None else f" ± {sd:.{digits}f}")


def full_width(console: Console, table: Table) -> int:
    """The columns a table takes when nothing presses it together."""
    unbounded = console.options.update_width(UNBOUNDED)
    return console.measure(table, options=unbounded).maximum


def notes(sentences: Iterable[str]) -> None:
    """A command's notes, one line each on stderr."""
    for sentence in sentences:
        print(f"fedcover: note: {sentence}", file=sys.stderr)


@contextmanager
def notes_held_back() -> Iterator[None]:
    """While a command computes, notes are not logged, as they are in Python: it prints them."""
    logger, handler = logging.getLogger("fedcover"), logging.NullHandler()
    logger.addHandler(handler)  # else Python's handler of last resort prints them
    before, logger.propagate = logger.propagate, False  # Opacus gives the root logger a handler
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(handler)


@contextmanager
def progress(quiet: bool) -> Iterator[ProgressCall | None]:
    """A bar on a terminal, one line a finished stage elsewhere, nothing when quiet."""
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield _say_stage
    else:
        columns = ("{task.description:<18}", BarColumn(), "{task.completed}/{task.total}")
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, *times, console=Console(stderr=True)) as bar:
            tasks: dict[str, TaskID] = {}

            def show(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bar.add_task(stage, total=total)
                bar.update(tasks[stage], completed=done)

            yield show


def _say_stage(stage: str, done: int, total: int) -> None:
    # Only what is finished: a graph that a later seed cannot cut is refused in one line.
    if done == total:
        print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)


@contextmanager
def grid_progress(quiet: bool) -> Iterator[OnCell | None]:
    """Cells done and the time that remains: a bar on a terminal, one line a cell elsewhere."""
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield _say_cell
    else:
        columns = (BarColumn(), "{task.completed}/{task.total} cells", TimeElapsedColumn())
        with Progress(*columns, "{task.description}", console=Console(stderr=True)) as bar:
            task = bar.add_task("")

            def show(done: int, total: int, left: float | None, name: str) -> None:
                text = f"{_left(left)}; last: {name}" if name else ""
                bar.update(task, completed=done, total=total, description=text)

            yield show


def _say_cell(done: int, total: int, left: float | None, name: str) -> None:
    what = f"{name}; {_left(left)}" if name else "finished before"
    print(f"{done} of {total} cells: {what}", file=sys.stderr, flush=True)


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes else f"about {seconds:.0f} s left"
