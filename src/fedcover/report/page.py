"""``report.html``: one file with its data, charts and code, which asks for nothing.

A run's page is made from the files of its folder alone, so ``fedcover report`` writes the same
bytes that ``fedcover run`` wrote. Observable Plot and D3 (``vendor/``) are part of the page.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from fedcover import __version__
from fedcover.errors import DataError
from fedcover.files import write_whole
from fedcover.report.folder import read_folder
from fedcover.report.payload import dumps, grid_payload, run_payload
from fedcover.tables import PAGE, RESULTS, with_later

VENDOR = ("d3.min.js", "plot.umd.min.js")
SCRIPTS = ("base.js", "state.js", "charts.js", "graph.js", "explorer.js", "ledger.js", "main.js")
GRID = (*RESULTS, "preset", "variant", "coverage_sd", "groups")
PUBLISHED = ("dataset", "clients", "method", "score", "level", "set_size", "set_size_sd")


def write_run_page(folder: str | Path) -> Path:
    """Write a run folder's ``report.html`` from its other files; it is whole or as it was."""
    folder = Path(folder)
    payload = run_payload(read_folder(folder))
    cells = payload["cells"]
    title = f"{cells['dataset'][0]}, {cells['clients'][0]} clients"
    # Beside the folder: nothing foreign may be left in it.
    return _write(folder / PAGE, render(payload, title), beside=folder.resolve().parent)


def write_grid_page(
    rows: pl.DataFrame,
    target: str | Path,
    *,
    title: str,
    published: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    resplits: int = 100,
) -> Path:
    """Write the page of many runs: set size and coverage against K and level, cell by cell.

    ``rows`` has the columns of ``results.csv``, if only those of an earlier version, and
    ``preset``, ``variant``, ``coverage_sd`` and ``groups``, a list of structs (kind, group, n_test,
    coverage, set_size). ``published`` are another source's sizes, drawn as hollow marks.
    """
    rows = with_later(rows)
    _require(rows, GRID, "rows")
    if rows.is_empty():
        raise DataError("rows is empty; a page needs at least one result.")
    if published is not None:
        _require(published, PUBLISHED, "published")
        published = published.select(PUBLISHED)
    payload = grid_payload(rows, published, notes, resplits)
    return _write(Path(target), render(payload, title), beside=Path(target).parent)


def render(payload: dict[str, Any], title: str) -> str:
    """The page's HTML; the same payload gives the same text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fedcover.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(
        title=title,
        payload=payload,
        version=__version__,
        data=dumps(payload),
        style=_text("templates/style.css"),
        vendor=[_text(f"vendor/{name}") for name in VENDOR],
        scripts=[_text(f"templates/{name}") for name in SCRIPTS],
    )


def _text(name: str) -> str:
    return (files("fedcover.report") / name).read_text(encoding="utf-8")


def _require(table: pl.DataFrame, columns: Sequence[str], name: str) -> None:
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise DataError(f"{name} lacks the column {missing[0]}; it needs {', '.join(columns)}.")


def _write(target: Path, text: str, beside: Path) -> Path:
    try:
        write_whole(target, text.encode(), beside)
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}.") from error
    return target
