"""Tables of the federation's commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table


def show_federation(console: Console, folder: Path) -> None:
    """The sizes of the sites' sets, each with its coverage, from a coordinator's run folder."""
    results = pl.read_csv(folder / "results.csv")
    table = Table(box=box.SIMPLE_HEAD, title="mean set size (coverage)")
    alphas = sorted(set(results["alpha"]))
    for column in ("method", "score", "quantile", *(f"{1 - alpha:g}" for alpha in alphas)):
        table.add_column(column)
    for key, rows in results.group_by("method", "score", "quantile", maintain_order=True):
        by_level = {row["alpha"]: row for row in rows.iter_rows(named=True)}
        cells = [f"{by_level[a]['set_size']:.2f} ({by_level[a]['coverage']:.3f})" for a in alphas]
        table.add_row(*map(str, key), *cells)
    console.print(table)


def show_ledger(console: Console, totals: Sequence[Mapping[str, Any]]) -> None:
    """What travelled, by job, site, phase and array."""
    table = Table(box=box.SIMPLE_HEAD)
    columns = ("job", "site", "phase", "direction", "name", "type", "shape", "messages", "bytes")
    for column in columns:
        table.add_column(column, justify="right" if column in ("messages", "bytes") else "left")
    for row in totals:
        shape = "×".join(map(str, row["shape"])) or "1"
        numbers = [f"{row['messages']:,}", f"{row['bytes']:,}"]
        table.add_row(*(str(row[column]) for column in columns[:6]), shape, *numbers)
    console.print(table)
    for direction, meaning in (("up", "left"), ("down", "reached")):
        total = sum(row["bytes"] for row in totals if row["direction"] == direction)
        console.print(f"{meaning} the site: {total:,} bytes")
