"""Computes the cells that are missing, one process a core, and some again to compare."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np
import polars as pl

from fedcover.carriers.stacked import threads
from fedcover.errors import DataError
from fedcover.paper.grid import Cell
from fedcover.paper.rows import IDENTITY, compute, graph_of
from fedcover.paper.store import Store, write_rows
from fedcover.paper.version import code_version

POLL = 1.0  # seconds between looks at a cell that another process computes
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

SIZE_SLACK = 0.05  # labels, or this share of the stored size, whichever is more
COVERAGE_SLACK = 0.01

OnCell = Callable[[int, int, float | None, str], None]
"""Called as ``on_cell(done, total, seconds_left, name)``."""


def complete(
    cells: Sequence[Cell],
    store: Store,
    *,
    data: str | Path | None = None,
    workers: int | None = None,
    on_cell: OnCell | None = None,
) -> None:
    """Compute every missing cell; cells that another process is at are waited for."""
    pending = store.missing(cells)
    clock = _Clock(len(cells), pending, on_cell)
    if not pending:
        return
    for graph in {cell.graph for cell in pending}:
        graph_of(graph, data)  # a missing file is said before any work, not by a worker
    count = min(workers or os.cpu_count() or 1, len(pending))
    spawned = get_context("spawn")
    with _one_thread_each(), ProcessPoolExecutor(count, spawned, initializer=_enter) as pool:
        while pending:
            futures = {
                pool.submit(_compute, cell, store.folder, data, code_version()): cell
                for cell in pending
            }
            try:
                for future in as_completed(futures):
                    if future.result():
                        clock.finished(futures[future])
            except BaseException as error:
                # End the workers now: what they have in hand is lost, the store is whole.
                for future in futures:
                    future.cancel()
                for process in list((pool._processes or {}).values()):
                    process.terminate()
                if isinstance(error, BrokenProcessPool):
                    raise DataError(
                        "A worker process died, perhaps for lack of memory; try --workers 1. What "
                        "was finished is kept."
                    ) from None
                raise
            pending = store.missing(pending)
            if pending:
                time.sleep(POLL)


def _compute(cell: Cell, folder: Path, data: str | Path | None, code: str) -> bool:
    """Compute a cell unless it is there or someone else is at it; whether it is there now."""
    if code_version() != code:  # a worker reads the sources when it starts
        raise DataError("The sources have changed since the run began; start it again.")
    store = Store(folder)
    with store.claim(cell) as ours:
        if ours and not store.holds(cell):
            write_rows(store.path(cell), compute(cell, data))
    return store.holds(cell)


class _Clock:
    """Counts cells and estimates the time that remains from the weights of what is done."""

    def __init__(self, total: int, pending: Sequence[Cell], on_cell: OnCell | None) -> None:
        self._total, self._on_cell = total, on_cell
        self._left = {cell.key: cell.weight for cell in pending}
        self._whole, self._began = sum(self._left.values()), time.perf_counter()
        self._report(None, "")

    def finished(self, cell: Cell) -> None:
        self._left.pop(cell.key, None)
        remains = sum(self._left.values())
        spent = time.perf_counter() - self._began
        self._report(spent * remains / (self._whole - remains), cell.name)

    def _report(self, seconds_left: float | None, name: str) -> None:
        if self._on_cell is not None:
            self._on_cell(self._total - len(self._left), self._total, seconds_left, name)


def _enter() -> None:
    """A worker has one thread, says no notes, and ends when who started it is gone."""
    import torch

    logging.getLogger("fedcover").addHandler(logging.NullHandler())  # a grid has too many
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Libraries read these variables when a worker loads them."""
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            del os.environ[name]
        os.environ.update(before)


@dataclass(frozen=True)
class Comparison:
    """One cell computed again: the largest differences over its rows, and the verdict."""

    cell: Cell
    rows: int
    size: float
    coverage: float
    agrees: bool


def sample(cells: Sequence[Cell], stored: pl.DataFrame, count: int, seed: int) -> list[Cell]:
    """So many of the stored cells, drawn without regard to their cost."""
    held = {tuple(row) for row in stored.select(*IDENTITY[:5], "seed").iter_rows()}
    known = [cell for cell in cells if cell.identity in held]
    if not known:
        raise DataError("none of the stored rows belongs to a cell of the grid.")
    drawn = np.random.default_rng(seed).permutation(len(known))[:count]
    return [known[i] for i in sorted(drawn)]


def verify(
    cells: Sequence[Cell], stored: pl.DataFrame, data: str | Path | None = None
) -> Iterator[Comparison]:
    """Compute each cell again, with one thread as the grid's workers, and compare its rows."""
    for cell in cells:
        with threads(1):
            again = compute(cell, data)
        both = stored.join(again, on=IDENTITY, how="inner", suffix="_again")
        size = (both["set_size_again"] - both["set_size"]).abs()
        coverage = (both["coverage_again"] - both["coverage"]).abs()
        allowed = (SIZE_SLACK * both["set_size"]).clip(lower_bound=SIZE_SLACK)
        agrees = bool(len(both) and (size <= allowed).all() and (coverage <= COVERAGE_SLACK).all())
        largest = [float(np.max(s.to_numpy(), initial=0.0)) for s in (size, coverage)]
        yield Comparison(cell, len(both), largest[0], largest[1], agrees)
