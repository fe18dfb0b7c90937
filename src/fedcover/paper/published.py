"""The paper's numbers as data (``paper/published/*.csv``)."""

from functools import cache

import polars as pl

from fedcover.paper.definition import folder


def main_sizes(method: str) -> dict[tuple[str, int, float], float]:
    """The main table's sizes of a method by graph, clients and level."""
    own = set_sizes().filter(table="main", method=method)
    rows = own.select("dataset", "clients", "level", "set_size").iter_rows()
    return {(graph, clients, level): size for graph, clients, level, size in rows}


def for_page() -> pl.DataFrame:
    """The main table, and what the table of scores adds to it."""
    added = (pl.col("table") == "main") | (pl.col("score") != "aps")
    return set_sizes().filter(added).drop("table")


@cache
def set_sizes() -> pl.DataFrame:
    """All published set sizes, one row a cell, without slips: cells that repeat other cells."""
    frame = pl.read_csv(folder() / "published" / "set_sizes.csv")
    frame = frame.rename({"confidence": "level", "std": "set_size_sd"})
    frame = frame.with_columns(pl.col("dataset").str.to_lowercase())
    slip = (pl.col("table") == "main") & (pl.col("dataset") == "pubmed") & (pl.col("level") == 0.8)
    return frame.filter(~(slip & pl.col("method").is_in(["loc", "fed"])))


@cache
def accuracy_changes() -> dict[tuple[str, int, str], float]:
    """The change in accuracy in per cent by graph, clients and method."""
    frame = pl.read_csv(folder() / "published" / "accuracy_change.csv")
    rows = frame.select("dataset", "clients", "method", "accuracy_change_percent").iter_rows()
    return {(graph.lower(), clients, method): change for graph, clients, method, change in rows}
