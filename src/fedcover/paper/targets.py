"""Targets on disk: compute what is missing, then write tables, figures, rows and provenance."""

import hashlib
import json
import platform
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from filelock import FileLock

from fedcover import __version__
from fedcover.errors import DataError, require
from fedcover.paper import grid
from fedcover.paper.comparisons import bytes_table, change_table, cuts_table, statistics_table
from fedcover.paper.definition import UNTRAINED, Definition
from fedcover.paper.published import for_page
from fedcover.paper.rows import IDENTITY
from fedcover.paper.set_sizes import cells_of, cells_table
from fedcover.paper.store import Store, read_rows, write, write_rows
from fedcover.paper.tables import Table, latex, markdown
from fedcover.paper.version import code_version
from fedcover.paper.workers import OnCell, complete
from fedcover.report.page import write_grid_page
from fedcover.run_folder import hardware, versions

ABOUT, ROWS_FILE, PAGE = "about.json", "rows.parquet", "report.html"
OF_ROWS: dict[str, Callable[[Definition, str, pl.DataFrame], Table]] = {
    "cells": cells_table,
    "change": change_table,
    "bytes": bytes_table,
}
OF_GRAPHS: dict[str, Callable[[Definition, str | Path | None], Table]] = {
    "statistics": statistics_table,
    "cuts": cuts_table,
}
"""A target's table by its kind."""
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
    trained = [definition for definition in targets if definition.kind not in UNTRAINED]
    shown = [grid.rows_of_target(one, preset, rows[one.target]) for one in trained]
    name = hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:20]
    with FileLock(store.locks / f"out-{name}.lock"):  # rows are read, joined and written
        if shown:
            joined = pl.concat([*_kept(out), *shown])
            joined = joined.unique(IDENTITY, keep="last", maintain_order=True)
            write_rows(out / ROWS_FILE, joined)
            about = provenance(preset, joined)
            write(out / ABOUT, (json.dumps(about, indent=2) + "\n").encode())
            _write_page(out, preset, joined, about)
        return [_draw(one, preset, rows[one.target], out, data) for one in targets]


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
    _write_page(out, preset, rows, about)
    return [_draw(definition, preset, rows, out, data) for definition in targets]


def _draw(
    definition: Definition, preset: str, rows: pl.DataFrame, out: Path, data: str | Path | None
) -> tuple[Definition, Table]:
    """``TARGET.md``, ``.tex``, ``.csv``, and ``.svg``, ``.png`` of a figure."""
    if definition.kind in UNTRAINED:
        table = OF_GRAPHS[definition.kind](definition, data)
    else:
        table = OF_ROWS[definition.kind](definition, preset, rows)
    name = definition.target
    files = {f"{name}.csv": table.data.write_csv().encode()}
    for stem, one in {name: table, **{f"{name}-{k}": t for k, t in table.extra.items()}}.items():
        files |= {f"{stem}.md": markdown(one).encode(), f"{stem}.tex": latex(one).encode()}
    if definition.figure:
        from fedcover.paper.figures import draw

        cells = cells_of(definition, preset, rows)
        figures = draw(cells, definition.figure, f"{definition.title} ({preset})")
        files |= {f"{name}.{kind}": content for kind, content in figures.items()}
    for file, content in files.items():
        write(out / file, content)
    return definition, table


def _kept(out: Path) -> list[pl.DataFrame]:
    """Rows of targets that were produced before by the same code; others are out of date."""
    path = out / ROWS_FILE
    return [read_rows(path).filter(pl.col("code") == code_version())] if path.is_file() else []


def require_matplotlib(targets: Sequence[Definition]) -> None:
    """Refuse targets with a figure where the extra is missing."""
    if any(d.figure for d in targets):
        require("report", "A figure")


def _write_page(out: Path, preset: str, rows: pl.DataFrame, about: dict[str, Any]) -> None:
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


def provenance(preset: str, rows: pl.DataFrame) -> dict[str, Any]:
    """What ``about.json`` holds: code, machine, and where the time went. The commit is the one
    whose command wrote the rows."""
    cells = rows.unique("cell", maintain_order=True)
    spent = pl.col("cell_seconds", "cell_cpu_seconds").sum().round(1)
    by = cells.group_by("dataset", "method", maintain_order=True)
    return {
        "fedcover": __version__,
        "commit": commit(),
        "code": code_version(),
        "preset": preset,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "hardware": {**hardware(), "processor": _processor()},
        "seconds": round(float(cells["cell_seconds"].sum()), 1),
        "cpu_seconds": round(float(cells["cell_cpu_seconds"].sum()), 1),
        "by_graph_and_method": by.agg(spent, pl.len().alias("cells")).to_dicts(),
    }


def commit() -> str:
    """The commit of the sources, if they are a clone; with a + if they were changed since."""
    sources = Path(__file__).parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(sources), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        changed = "+" if git("status", "--porcelain", "--", ".") else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
