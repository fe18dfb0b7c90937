"""A run in few lines: set size and coverage by method and level, honest about the error."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

import polars as pl

from fedcover.algorithm.calibrate import base_score
from fedcover.conformal import RULES, beta_binomial, coverage_band

CELL = ("score", "quantile", "method", "alpha")
STANDARD_ERRORS = 3


def summarise(results: pl.DataFrame, groups: pl.DataFrame, resplits: int) -> pl.DataFrame:
    """Mean over seeds for each score, quantile, method and level.

    ``set_size_sd`` is the spread over seeds. ``coverage_se`` is the standard error of the mean
    coverage over seeds and re-splits: given the trained models, only the re-splits are random.
    One re-split has no spread of its own; the Beta-binomial's stands in (docs/guarantee.md).
    ``below``: coverage lies under 1 − alpha by more than three of these errors.
    """
    spread = groups.filter(pl.col("kind") == "all").select(*CELL, "seed", "coverage_sd")
    error = (pl.col("coverage_sd") ** 2 / resplits).sum().sqrt() / pl.len()
    short = (1 - pl.col("alpha")) - pl.col("coverage")
    seeds = results.join(spread, on=[*CELL, "seed"], maintain_order="left")
    return (
        seeds.with_columns(coverage_spread(seeds))
        .group_by(CELL, maintain_order=True)
        .agg(
            pl.col("set_size").mean(),
            pl.col("set_size").std().alias("set_size_sd"),
            pl.col("coverage").mean(),
            error.alias("coverage_se"),
            pl.col("min_client_coverage").mean(),
            pl.col("accuracy").mean(),
            pl.len().alias("seeds"),
        )
        .with_columns((short > STANDARD_ERRORS * pl.col("coverage_se")).alias("below"))
    )


def coverage_spread(seeds: pl.DataFrame) -> pl.Series:
    """The measured spread over re-splits, or what theory gives where none was measured."""
    rows = seeds.select("coverage_sd", "alpha", "n_calibration", "n_test").iter_rows()
    spread = [
        beta_binomial(alpha, n, m)[1] if sd is None or isnan(sd) else sd for sd, alpha, n, m in rows
    ]
    return pl.Series("coverage_sd", spread, dtype=pl.Float64)


def closed_share(results: pl.DataFrame) -> pl.DataFrame:
    """How much of the distance from ``fed`` to ``restored`` ``gen`` closes, in labels a set.

    One row for each score, quantile and level. ``closed`` is 1 where Gen does as well as a perfect
    generator would and negative where it does worse than ``fed``. It is missing where the distance
    is no larger than two of its standard errors over the seeds: a share of nothing means nothing.
    """
    cell = ["score", "quantile", "alpha"]
    sizes = results.pivot(
        on="method", index=[*cell, "seed"], values="set_size", maintain_order=True
    )
    distance, gained = pl.col("fed") - pl.col("restored"), pl.col("fed") - pl.col("gen")
    return (
        sizes.with_columns(distance.alias("distance"), gained.alias("gained"))
        .group_by(cell, maintain_order=True)
        .agg(
            pl.col("distance", "gained").mean(),
            (pl.col("distance").std() / pl.len().sqrt()).fill_null(0.0).alias("error"),
        )
        .with_columns(
            pl.when(pl.col("distance") > 2 * pl.col("error"))
            .then(pl.col("gained") / pl.col("distance"))
            .alias("closed")
        )
        .select(*cell, "closed")
    )


def band_of(
    row: Mapping[str, Any], n_calibration: float, clients: int, calibrate: str = "pooled"
) -> tuple[float | None, float | None]:
    """Where the theorem puts a cell's mean coverage; None: no promise, or no upper end.

    Scores that tie have no upper end. The rule ``mixture`` has one, but it needs each client's
    numbers, which tables of results do not hold; so has calibration by group.
    """
    if not RULES[row["quantile"]].guarantee:
        return None, None
    low, high = coverage_band(row["alpha"], round(n_calibration), clients)
    open_ended = base_score(row["score"]).ties or row["quantile"] == "mixture"
    open_ended = open_ended or calibrate != "pooled"
    return low, None if open_ended else high


def inside_band(row: Mapping[str, Any], n_calibration: float, clients: int) -> bool | None:
    """Whether a cell's mean coverage lies in its band, up to three errors of that mean.

    None where nothing is promised.
    """
    low, high = band_of(row, n_calibration, clients)
    if low is None:
        return None
    slack = STANDARD_ERRORS * row["coverage_se"]
    return bool(
        row["coverage"] >= low - slack and (high is None or row["coverage"] <= high + slack)
    )
