"""The theorem on a real graph: the short version of ``make validity`` on the embedded Cora.

Given the trained models, only the calibration/test re-splits are random, so their spread is the
error of the mean coverage (docs/guarantee.md; fedcover.report.summary).
"""

import polars as pl
import pytest

from fedcover import Config, load, run
from fedcover.conformal import SCORES, base_score
from fedcover.report.summary import STANDARD_ERRORS, summarise

ALPHAS = (0.05, 0.1, 0.2)
METHODS = ("fed", "loc", "gen", "fed+prior+mix")
JUDGED = (*SCORES, "slac")


@pytest.fixture(scope="module")
def cells():
    """Every cell of the guarantee, and the same for averaged quantiles, with its band."""
    cora = load("cora")
    tables = []
    for clients in (3, 20):
        config = Config(
            clients=clients,
            methods=METHODS,
            scores=JUDGED,
            quantiles=("exact", "average"),
            alphas=ALPHAS,
            seeds=2,
            rounds=15,
            gen={"prototypes": (5,), "shares": (0.02,), "link_rounds": 5, "vae": {"epochs": 30}},
            personal={"tune_rounds": 5, "local_rounds": 10},
        )
        finished = run(cora, config)
        table = summarise(finished.results, finished.groups, config.resplits)
        least = min(n for pairs in finished.info["effective"].values() for n, _ in pairs)
        level = 1 - pl.col("alpha")  # the band of exact, for averaged quantiles, too
        ends = {"low": level, "high": level + 2 / least, "clients": pl.lit(clients)}
        tables.append(table.with_columns(**ends))
    return pl.concat(tables)


def outside(cells):
    """The cells whose coverage leaves the band by more than three errors."""
    error = STANDARD_ERRORS * pl.col("coverage_se")
    tied = [name for name in JUDGED if base_score(name).ties]
    below = pl.col("coverage") < pl.col("low") - error
    above = pl.col("coverage") > pl.col("high") + error
    return cells.filter(below | (above & ~pl.col("score").is_in(tied)))


def test_exact_coverage_lies_in_the_band(cells):
    exact = cells.filter(quantile="exact")
    assert len(exact) == 2 * len(METHODS) * len(JUDGED) * len(ALPHAS)
    wrong = outside(exact).select("clients", "method", "score", "alpha", "coverage", "coverage_se")
    assert wrong.rows() == []


def test_the_check_is_sharp(cells):
    assert cells["coverage_se"].max() < 0.002  # of levels that are 0.05 apart


def test_averaged_quantiles_fail_the_same_check(cells):
    average = cells.filter(quantile="average", clients=20)
    low = outside(average).filter(pl.col("coverage") < pl.col("low"))
    assert len(low) > len(average) / 2
