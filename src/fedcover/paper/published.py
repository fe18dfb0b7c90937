"""The paper's numbers as data (``paper/published/*.csv``)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import polars as pl

from fedcover.paper.definition import folder

SLIPS = frozenset(
    ("main", "pubmed", clients, method, 0.80)
    for clients in (3, 5, 10, 20)
    for method in ("loc", "fed")
)
"""Cells of the main table that repeat other cells: nothing to compare with."""


class Size(NamedTuple):
    """A published set size and its standard deviation."""

    mean: float
    sd: float


@cache
def sizes(table: str) -> dict[tuple[str, int, str, str, float], Size]:
    """By graph, clients, method, score and level."""
    rows = set_sizes().filter(table=table).drop("table").iter_rows()
    return {(graph, *key): Size(mean, sd) for graph, *key, mean, sd in rows}


def main_sizes(method: str) -> dict[tuple[str, int, float], float]:
    """The main table's sizes of a method by graph, clients and level."""
    return {
        (graph, clients, level): size.mean
        for (graph, clients, name, _, level), size in sizes("main").items()
        if name == method
    }


def for_page() -> pl.DataFrame:
    """The main table, and what the table of scores adds to it."""
    added = (pl.col("table") == "main") | (pl.col("score") != "aps")
    return set_sizes().filter(added).drop("table")


def set_sizes() -> pl.DataFrame:
    """All published set sizes but slips, one row a cell."""
    frame = pl.read_csv(folder() / "published" / "set_sizes.csv").select(
        "table",
        pl.col("dataset").str.to_lowercase(),
        "clients",
        "method",
        "score",
        pl.col("confidence").alias("level"),
        "set_size",
        pl.col("std").alias("set_size_sd"),
    )
    keys = frame.select("table", "dataset", "clients", "method", "level").iter_rows()
    return frame.filter(pl.Series([key not in SLIPS for key in keys]))


@cache
def accuracy_changes() -> dict[tuple[str, int, str], float]:
    """The change in accuracy in per cent by graph, clients and method."""
    frame = pl.read_csv(folder() / "published" / "accuracy_change.csv")
    return {
        (row["dataset"].lower(), row["clients"], row["method"]): row["accuracy_change_percent"]
        for row in frame.iter_rows(named=True)
    }
