"""Do the stored results come out again? Some cells are computed anew and compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fedcover.carriers.stacked.carrier import threads
from fedcover.config import METHODS, recipe_of
from fedcover.errors import DataError
from fedcover.paper.grid import Cell
from fedcover.paper.rows import IDENTITY, compute

SIZE = 0.05  # labels, or this share of the stored size, whichever is more
COVERAGE = 0.01


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
    model = METHODS[recipe_of(cell.method).base].model or config.model
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
        allowed = (SIZE * both["set_size"]).clip(lower_bound=SIZE)
        agrees = bool(len(both) and (size <= allowed).all() and (coverage <= COVERAGE).all())
        largest = [float(np.max(s.to_numpy(), initial=0.0)) for s in (size, coverage)]
        yield Comparison(cell, len(both), largest[0], largest[1], agrees)
