"""Computes the cells that are missing, one process a core, and some again to compare."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np
import polars as pl

from fedcover.carriers.stacked import threads
from fedcover.config import recipe_of
from fedcover.errors import DataError
from fedcover.paper.grid import Cell
from fedcover.paper.rows import IDENTITY, compute, graph_of
from fedcover.paper.store import Store
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
    clock = _Clock(cells, pending, on_cell)
    if not pending:
        return
    for graph in {cell.graph for cell in pending}:
        graph_of(graph, data)  # a missing file is said before any work, not by a worker
    count = min(workers or os.cpu_count() or 1, len(pending))
    with _one_thread_each(), _pool(count) as pool:
        while pending:
            futures = {
                pool.submit(_compute, cell, store.folder, data, code_version()): cell
                for cell in pending
            }
            try:
                _follow(futures, clock)
            except BaseException:
                for future in futures:
                    future.cancel()
                _stop(pool)
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
            store.write(cell, compute(cell, data))
    return store.holds(cell)


def _follow(futures: dict[Future[bool], Cell], clock: _Clock) -> None:
    """Report cells as they are finished, here or by another process."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=POLL, return_when=FIRST_COMPLETED)
        for future in done:
            cell = futures[future]
            try:
                if future.result():
                    clock.finished(cell)
            except BrokenProcessPool:
                raise DataError(
                    "A worker process died, perhaps for lack of memory; try --workers 1. What was "
                    "finished is kept."
                ) from None


class _Clock:
    """Counts cells and estimates the time that remains from the weights of what is done."""

    def __init__(
        self, cells: Sequence[Cell], pending: Sequence[Cell], on_cell: OnCell | None
    ) -> None:
        self._total = len(cells)
        self._left = {cell.key: cell for cell in pending}
        self._on_cell = on_cell
        self._began = time.perf_counter()
        self._weight = 0.0
        if on_cell is not None:
            on_cell(self._total - len(self._left), self._total, None, "")

    def finished(self, cell: Cell) -> None:
        self._left.pop(cell.key, None)
        self._weight += cell.weight
        if self._on_cell is not None:
            speed = self._weight / (time.perf_counter() - self._began)
            remains = sum(left.weight for left in self._left.values()) / speed
            self._on_cell(self._total - len(self._left), self._total, remains, cell.name)


def _pool(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_enter)


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


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers now: what they have in hand is lost, what is in the store is whole."""
    for process in list((pool._processes or {}).values()):
        process.terminate()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Libraries read these variables when a worker loads them."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
    known = [c for c in cells if _identity(c) in held]
    if not known:
        raise DataError("none of the stored rows belongs to a cell of the grid.")
    drawn = np.random.default_rng(seed).permutation(len(known))[:count]
    return [known[i] for i in sorted(drawn)]


def _identity(cell: Cell) -> tuple[object, ...]:
    config = cell.config
    model = recipe_of(cell.method).method.model or config.model
    return (cell.graph, config.clients, cell.method, cell.variant, model, config.first_seed)


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
