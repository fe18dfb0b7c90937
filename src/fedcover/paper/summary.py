"""Rows of seeds to cells: means, spreads, and whether the promise was kept."""

from __future__ import annotations

import polars as pl

from fedcover.conformal import RULES
from fedcover.experiment.summary import inside_band

CELL = ("dataset", "clients", "method", "variant", "score", "quantile", "alpha")


def summarise_cells(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a cell, with the mean over its seeds.

    ``set_size_sd`` and ``coverage_sd`` are spreads over seeds. ``coverage_se`` is the error of the
    mean coverage given the trained models (only re-splits are random). ``inside`` says whether the
    coverage lies in Theorem 1's band, for rules that promise it.
    """
    error = (pl.col("coverage_sd") ** 2 / pl.col("resplits")).sum().sqrt() / pl.len()
    cells = rows.group_by(CELL, maintain_order=True).agg(
        pl.col("set_size").mean(),
        pl.col("set_size").std().alias("set_size_sd"),
        pl.col("coverage").mean(),
        pl.col("coverage").std().alias("coverage_sd"),
        error.alias("coverage_se"),
        pl.col("min_client_coverage").mean(),
        pl.col("accuracy").mean(),
        pl.col("accuracy").std().alias("accuracy_sd"),
        pl.col("n_calibration").min(),
        pl.len().alias("seeds"),
    )
    verdicts = [
        inside_band(row, row["n_calibration"], row["clients"])
        if RULES[row["quantile"]].guarantee
        else None
        for row in cells.iter_rows(named=True)
    ]
    return cells.with_columns(
        (1 - pl.col("alpha")).round(6).alias("level"),
        pl.Series("inside", verdicts, dtype=pl.Boolean),
    )
