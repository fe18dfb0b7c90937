"""Rows of seeds to cells: means, spreads, and whether the promise was kept."""

from __future__ import annotations

import polars as pl

from fedcover.simulation.summary import band_of, coverage_spread, inside_band

CELL = ("dataset", "clients", "method", "variant", "model", "score", "quantile", "alpha")


def summarise_cells(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a cell, with the mean over its seeds.

    ``set_size_sd`` and ``coverage_sd`` are spreads over seeds. ``coverage_se`` is the error of the
    mean coverage given the trained models (only re-splits are random). ``low`` and ``high`` are the
    theorem's band, ``inside`` whether the coverage lies in it; None where nothing is promised.
    """
    error = (pl.col("coverage_sd") ** 2 / pl.col("resplits")).sum().sqrt() / pl.len()
    cells = (
        rows.with_columns(coverage_spread(rows))
        .group_by(CELL, maintain_order=True)
        .agg(
            pl.col("set_size").mean(),
            pl.col("set_size").std().alias("set_size_sd"),
            pl.col("coverage").mean(),
            pl.col("coverage").std().alias("spread"),
            error.alias("coverage_se"),
            pl.col("min_client_coverage").mean(),
            pl.col("accuracy").mean(),
            pl.col("n_calibration").mean(),
            pl.len().alias("seeds"),
        )
        .rename({"spread": "coverage_sd"})
    )
    judged = [(row, row["n_calibration"], row["clients"]) for row in cells.iter_rows(named=True)]
    bands = [band_of(*cell) for cell in judged]
    return cells.with_columns(
        (1 - pl.col("alpha")).round(6).alias("level"),
        pl.Series("low", [low for low, _ in bands], dtype=pl.Float64),
        pl.Series("high", [high for _, high in bands], dtype=pl.Float64),
        pl.Series("inside", [inside_band(*cell) for cell in judged], dtype=pl.Boolean),
    )
