"""Targets on disk: compute what is missing, then write tables, figures, rows and provenance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from filelock import FileLock

from fedcover.errors import DataError
from fedcover.extras import require
from fedcover.paper import grid, views
from fedcover.paper.definition import UNTRAINED, Definition
from fedcover.paper.files import read_rows, write, write_rows, write_target
from fedcover.paper.provenance import provenance
from fedcover.paper.rows import IDENTITY
from fedcover.paper.store import Store
from fedcover.paper.tables import Table
from fedcover.paper.version import code_version
from fedcover.paper.views.cells import cells_of
from fedcover.paper.views.select import rows_of_target
from fedcover.paper.work import OnCell, complete

ABOUT, ROWS_FILE, PAGE = "about.json", "rows.parquet", "report.html"
Drawn = list[tuple[Definition, Table]]


def produce(
    targets: Sequence[Definition],
    everything: Sequence[Definition],
    preset: str,
    *,
    store: Store,
    out: Path,
    data: str | Path | None = None,
    workers: int | None = None,
    on_cell: OnCell | None = None,
) -> Drawn:
    """Complete the targets' cells and write every file of theirs under ``out``.

    ``everything`` is all definitions: a model is judged by all that any of them asks for.
    """
    require_matplotlib(targets)
    _kept(out)  # a damaged file is said before the work
    cells = grid.cells(everything, preset)
    own = {definition.target: grid.of(definition, preset, cells) for definition in targets}
    needed = [cell for cell in cells if any(cell in part for part in own.values())]
    complete(needed, store, data=data, workers=workers, on_cell=on_cell)

    rows = {target: store.read(part) for target, part in own.items()}
    shown = [
        rows_of_target(definition, preset, rows[definition.target])
        for definition in targets
        if definition.kind not in UNTRAINED
    ]
    name = hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:20]
    with FileLock(store.locks / f"out-{name}.lock"):  # rows are read, joined and written
        if shown:
            joined = pl.concat([*_kept(out), *shown])
            joined = joined.unique(IDENTITY, keep="last", maintain_order=True)
            write_rows(out / ROWS_FILE, joined)
            about = provenance(preset, joined)
            write(out / ABOUT, (json.dumps(about, indent=2) + "\n").encode())
            _page(out, preset, joined, about)
        return [_draw(definition, preset, rows, out, data) for definition in targets]


def redraw(
    targets: Sequence[Definition], preset: str, *, out: Path, data: str | Path | None = None
) -> Drawn:
    """Tables, figures and page again from the stored rows, whatever code computed them."""
    require_matplotlib(targets)
    rows = read_rows(out / ROWS_FILE)
    try:
        about = json.loads((out / ABOUT).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{out / ABOUT} cannot be read; run fedcover paper again.") from error
    _page(out, preset, rows, about)
    same = {definition.target: rows for definition in targets}
    return [_draw(definition, preset, same, out, data) for definition in targets]


def _draw(
    definition: Definition,
    preset: str,
    rows: dict[str, pl.DataFrame],
    out: Path,
    data: str | Path | None,
) -> tuple[Definition, Table]:
    figures: dict[str, bytes] = {}
    if definition.kind in UNTRAINED:
        table = views.UNTRAINED[definition.kind](definition, data)
    else:
        own = rows[definition.target]
        table = views.TRAINED[definition.kind](definition, preset, own)
        if definition.figure:
            from fedcover.paper.figures import draw

            cells = cells_of(definition, preset, own)
            figures = draw(cells, definition.figure, f"{definition.title} ({preset})")
    write_target(out, definition.target, table, figures)
    return definition, table


def _kept(out: Path) -> list[pl.DataFrame]:
    """Rows of targets that were produced before by the same code; others are out of date."""
    path = out / ROWS_FILE
    return [read_rows(path).filter(pl.col("code") == code_version())] if path.is_file() else []


def require_matplotlib(targets: Sequence[Definition]) -> None:
    """Refuse targets with a figure where the extra is missing."""
    if any(d.figure for d in targets):
        require("report", "A figure")


def _page(out: Path, preset: str, rows: pl.DataFrame, about: dict[str, Any]) -> None:
    from fedcover.paper.published import for_page
    from fedcover.report.page import write_grid_page

    # Gen on GraphSAGE is not the Gen beside it: what differs in its model is a variant.
    sage = pl.when(pl.col("model") == "sage").then(pl.lit("GraphSAGE")).otherwise("variant")
    write_grid_page(
        rows.with_columns(sage.alias("variant")),
        out / PAGE,
        title=f"The paper's grid, preset {preset}",
        published=for_page(),
        notes=[f"fedcover {about['fedcover']}, commit {about['commit']}, code {about['code']}."],
        resplits=int(rows["resplits"].to_numpy().min()),
    )
