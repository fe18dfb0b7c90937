"""Rows of seeds to cells: set size and coverage, the error of both, and whether the promise held.

The guarantee held where the mean coverage lies in the theorem's band, up to three standard errors
of that mean; where scores tie, the upper end does not apply (docs/guarantee.md).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from fedcover.conformal import RULES, base_score, beta_binomial, coverage_band
from fedcover.tables import KEY

CELL = ("score", "quantile", "method", "alpha")
STANDARD_ERRORS = 3
MEANS = (
    "clients", "n_calibration", "n_test", "set_size", "coverage", "singleton_rate", "empty_rate",
    "min_client_coverage", "accuracy",
)  # fmt: skip


def summarise(results: pl.DataFrame, groups: pl.DataFrame, resplits: int) -> pl.DataFrame:
    """A run's cells (see :func:`summarise_rows`): one for each score, rule, method and level."""
    rows = with_spread(results, groups).with_columns(pl.lit(resplits).alias("resplits"))
    return summarise_rows(rows, CELL)


def with_spread(results: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """The rows of ``results.csv`` with ``coverage_sd``, which ``groups.csv`` holds."""
    spread = groups.filter(pl.col("kind") == "all").select(*KEY, "coverage_sd")
    return results.join(spread, on=KEY, how="left", maintain_order="left")


def summarise_rows(
    rows: pl.DataFrame, by: Sequence[str], calibrate: str = "pooled"
) -> pl.DataFrame:
    """Means over seeds, one row for each cell, which is what ``by`` tells apart.

    ``rows`` have the columns of ``results.csv``, ``coverage_sd`` over re-splits, and ``resplits``.
    ``set_size_sd`` and ``coverage_sd`` are spreads over seeds. ``coverage_se`` is the standard
    error of the mean coverage over seeds and re-splits: given the trained models, only the
    re-splits are random. One re-split has no spread of its own; the Beta-binomial's stands in
    (docs/guarantee.md). ``below``: coverage lies under 1 − alpha by more than three of these
    errors. ``low`` and ``high`` are the theorem's band, None where nothing is promised or where
    there is no upper end, and ``status`` is what :func:`status` says.
    """
    error = (pl.col("coverage_sd") ** 2 / pl.col("resplits")).sum().sqrt() / pl.len()
    short = (1 - pl.col("alpha")) - pl.col("coverage")
    cells = (
        rows.with_columns(_spread(rows))
        .group_by(by, maintain_order=True)
        .agg(
            *(pl.col(name).mean() for name in MEANS if name not in by),
            pl.col("set_size", "coverage").std().name.suffix("_sd"),
            error.alias("coverage_se"),
            pl.len().alias("seeds"),
        )
        .with_columns((short > STANDARD_ERRORS * pl.col("coverage_se")).alias("below"))
    )
    judged = []
    for cell in cells.iter_rows(named=True):
        low, high = _band(cell, calibrate)
        judged.append((low, high, status({**cell, "low": low, "high": high})))
    schema = {"low": pl.Float64, "high": pl.Float64, "status": pl.String}
    return cells.hstack(pl.DataFrame(judged, schema=schema, orient="row"))


def status(cell: Mapping[str, Any]) -> str:
    """``none`` (no guarantee), ``below``, ``above`` or ``inside`` its band."""
    slack = STANDARD_ERRORS * cell["coverage_se"]
    if cell["low"] is None:
        return "none"
    if cell["coverage"] < cell["low"] - slack:
        return "below"
    if cell["high"] is not None and cell["coverage"] > cell["high"] + slack:
        return "above"
    return "inside"


def _spread(rows: pl.DataFrame) -> pl.Series:
    """The measured spread over re-splits, or what theory gives where none was measured."""
    seeds = rows.select("coverage_sd", "alpha", "n_calibration", "n_test").fill_nan(None)
    spread = [beta_binomial(*seed)[1] if sd is None else sd for sd, *seed in seeds.iter_rows()]
    return pl.Series("coverage_sd", spread, dtype=pl.Float64)


def _band(cell: Mapping[str, Any], calibrate: str) -> tuple[float | None, float | None]:
    """Where the theorem puts a cell's mean coverage.

    Scores that tie have no upper end. The rule ``mixture`` has one, but it needs each client's
    numbers, which tables of results do not hold; so has calibration by group.
    """
    if not RULES[cell["quantile"]].guarantee:
        return None, None
    low, high = coverage_band(cell["alpha"], round(cell["n_calibration"]), round(cell["clients"]))
    bounded = cell["quantile"] != "mixture" and calibrate == "pooled"
    return low, high if bounded and not base_score(cell["score"]).ties else None


def closed_share(results: pl.DataFrame) -> pl.DataFrame:
    """How much of the distance from ``fed`` to ``restored`` ``gen`` closes, in labels a set.

    One row for each score, quantile and level. ``closed`` is 1 where Gen does as well as a perfect
    generator would and negative where it does worse than ``fed``. It is missing where the distance
    is no larger than two of its standard errors over the seeds: a share of nothing means nothing.
    """
    cell = ["score", "quantile", "alpha"]
    seeds = results.pivot("method", index=[*cell, "seed"], values="set_size", maintain_order=True)
    distance, gained = pl.col("fed") - pl.col("restored"), pl.col("fed") - pl.col("gen")
    error = (distance.std() / pl.len().sqrt()).fill_null(0.0)
    clear = pl.when(distance.mean() > 2 * error)
    closed = clear.then(gained.mean() / distance.mean()).alias("closed")
    return seeds.group_by(cell, maintain_order=True).agg(closed)
