"""Targets on disk: compute what is missing, then write tables, figures, rows and provenance."""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

from fedcover import __version__
from fedcover.errors import DataError, UsageError
from fedcover.paper import grid, views
from fedcover.paper.definition import UNTRAINED, Definition
from fedcover.paper.rows import IDENTITY, ROWS
from fedcover.paper.store import Store
from fedcover.paper.tables import Table, latex, markdown
from fedcover.paper.version import code_version
from fedcover.paper.views.cells import cells_of
from fedcover.paper.views.select import rows_of_target
from fedcover.paper.work import OnCell, complete

ABOUT, ROWS_FILE, PAGE = "about.json", "rows.parquet", "report.html"


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
) -> list[tuple[Definition, Table]]:
    """Complete the targets' cells and write every file of theirs under ``out``.

    ``everything`` is all definitions: a model is judged by all that any of them asks for.
    """
    if any(d.figure for d in targets) and find_spec("matplotlib") is None:
        raise UsageError(
            "Figures need matplotlib, which is not installed; install fedcover[report]."
        )
    cells = grid.cells(everything, preset)
    own = {definition.target: grid.of(definition, preset, cells) for definition in targets}
    needed = [cell for cell in cells if any(cell in part for part in own.values())]
    complete(needed, store, data=data, workers=workers, on_cell=on_cell)

    tables, shown = [], []
    for definition in targets:
        if definition.kind in UNTRAINED:
            table, figures = views.UNTRAINED[definition.kind](definition, data), {}
        else:
            rows = store.read(own[definition.target])
            table = views.TRAINED[definition.kind](definition, preset, rows)
            figures = _figures(definition, preset, rows)
            shown.append(rows_of_target(definition, preset, rows))
        write_target(out, definition.target, table, figures)
        tables.append((definition, table))
    if shown:
        rows = pl.concat([*_kept(out), *shown])
        rows = rows.unique(IDENTITY, keep="last", maintain_order=True)
        write(out / ROWS_FILE, _parquet(rows))
        _page(out, preset, rows)
        about = _about(preset, rows)
        write(out / ABOUT, (json.dumps(about, indent=2) + "\n").encode())
    return tables


def _kept(out: Path) -> list[pl.DataFrame]:
    """Rows of targets that were produced before by the same code; others are out of date."""
    path = out / ROWS_FILE
    return [read_rows(path).filter(pl.col("code") == code_version())] if path.is_file() else []


def read_rows(path: Path) -> pl.DataFrame:
    """The rows that were written with the tables."""
    try:
        return pl.read_parquet(path).select(ROWS.names()).cast(ROWS)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def write_target(out: Path, name: str, table: Table, figures: dict[str, bytes]) -> None:
    """One target's files: ``NAME.md``, ``.tex``, ``.csv``, and ``.svg``, ``.png`` of a figure."""
    write(out / f"{name}.md", markdown(table).encode())
    write(out / f"{name}.tex", latex(table).encode())
    write(out / f"{name}.csv", table.data.write_csv().encode())
    for extra, smaller in table.extra.items():
        write(out / f"{name}-{extra}.md", markdown(smaller).encode())
        write(out / f"{name}-{extra}.tex", latex(smaller).encode())
    for kind, content in figures.items():
        write(out / f"{name}.{kind}", content)


def _figures(definition: Definition, preset: str, rows: pl.DataFrame) -> dict[str, bytes]:
    if definition.figure is None:
        return {}
    from fedcover.paper.figures import draw

    title = f"{definition.title} ({preset})"
    return draw(cells_of(definition, preset, rows), definition.figure, title)


def write(path: Path, content: bytes) -> None:
    """A file that is whole or absent; one with the same content is left alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.read_bytes() == content:
            return
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from error


def _parquet(rows: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    rows.write_parquet(file, compression="zstd", compression_level=15)
    return file.getvalue()


def _page(out: Path, preset: str, rows: pl.DataFrame) -> None:
    from fedcover.paper.published import main_table
    from fedcover.report.page import write_grid_page

    # Gen on GraphSAGE is not the Gen beside it: what differs in its model is a variant.
    sage = pl.when(pl.col("model") == "sage").then(pl.lit("GraphSAGE")).otherwise("variant")
    write_grid_page(
        rows.with_columns(sage.alias("variant")),
        out / PAGE,
        title=f"The paper's grid, preset {preset}",
        published=main_table(),
        notes=[f"fedcover {__version__}, commit {commit()}, code {code_version()}."],
    )


def _about(preset: str, rows: pl.DataFrame) -> dict[str, Any]:
    """Where the numbers come from, and where the time went."""
    from fedcover.experiment.run import hardware, versions

    cells = rows.unique("cell", maintain_order=True)
    by = cells.group_by("dataset", "method", maintain_order=True)
    spent = pl.col("cell_seconds", "cell_cpu_seconds").sum().round(1)
    seconds = by.agg(spent, pl.len().alias("cells"))
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
        "by_graph_and_method": seconds.to_dicts(),
    }


def commit() -> str:
    """The commit of the sources, if they are a clone; with a + if they were changed since."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()

    try:
        changed = "+" if git("status", "--porcelain", "--", str(here.parent)) else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
