"""The paper's numbers as data (``paper/published/*.csv``)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import polars as pl

from fedcover.paper.definition import folder

SLIPS = frozenset(
    ("pubmed", clients, method, 0.80) for clients in (3, 5, 10, 20) for method in ("loc", "fed")
)
"""Cells of the main table that repeat other cells: nothing to compare with."""


class Size(NamedTuple):
    """A published set size and its standard deviation."""

    mean: float
    sd: float


@cache
def sizes(table: str) -> dict[tuple[str, int, str, str, float], Size]:
    """By graph, clients, method, score and level; cells that are slips are left out."""
    found = {}
    for row in set_sizes().filter(table=table).iter_rows(named=True):
        key = (row["dataset"], row["clients"], row["method"], row["score"], row["level"])
        if table != "main" or (row["dataset"], *key[1:3], row["level"]) not in SLIPS:
            found[key] = Size(row["set_size"], row["set_size_sd"])
    return found


def main_sizes(method: str) -> dict[tuple[str, int, float], float]:
    """The main table's sizes of a method by graph, clients and level."""
    return {
        (graph, clients, level): size.mean
        for (graph, clients, name, _, level), size in sizes("main").items()
        if name == method
    }


def for_page() -> pl.DataFrame:
    """The main table without slips, and what the table of scores adds to it."""
    whole = set_sizes()
    keys = whole.select("dataset", "clients", "method", "level").iter_rows()
    slips = pl.Series([key in SLIPS for key in keys], dtype=pl.Boolean)
    main = pl.col("table") == "main"
    return whole.filter((main & ~slips) | (~main & (pl.col("score") != "aps"))).drop("table")


def set_sizes() -> pl.DataFrame:
    """All published set sizes, one row a cell."""
    frame = pl.read_csv(folder() / "published" / "set_sizes.csv")
    return frame.select(
        "table",
        pl.col("dataset").str.to_lowercase(),
        "clients",
        "method",
        "score",
        pl.col("confidence").alias("level"),
        "set_size",
        pl.col("std").alias("set_size_sd"),
    )


@cache
def accuracy_changes() -> dict[tuple[str, int, str], float]:
    """The change in accuracy in per cent by graph, clients and method."""
    frame = pl.read_csv(folder() / "published" / "accuracy_change.csv")
    return {
        (row["dataset"].lower(), row["clients"], row["method"]): row["accuracy_change_percent"]
        for row in frame.iter_rows(named=True)
    }
