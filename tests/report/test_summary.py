import math

import polars as pl
import pytest

from fedcover.conformal import beta_binomial
from fedcover.report.summary import summarise


def tables(coverages, spreads, sizes, alpha=0.1):
    """Results and groups of one cell, a row for each seed."""
    seeds = range(len(coverages))
    key = {"score": "lac", "quantile": "exact", "method": "fed", "alpha": alpha}
    results = pl.DataFrame(
        [
            key
            | {"seed": s, "set_size": sizes[s], "coverage": coverages[s]}
            | {"min_client_coverage": 0.5 + s, "accuracy": 0.25 * s}
            | {"n_calibration": 99, "n_test": 50 * (s + 1), "clients": 3}
            | {"singleton_rate": 0.5, "empty_rate": 0.0}
            for s in seeds
        ]
    )
    groups = pl.DataFrame(
        [
            key | {"seed": s, "kind": kind, "coverage_sd": sd}
            for s in seeds
            for kind, sd in (("all", spreads[s]), ("client", None))
        ],
        schema_overrides={"coverage_sd": pl.Float64},
    )
    return results, groups


def test_means_spread_and_error_by_hand():
    table = summarise(*tables([0.90, 0.92], [0.03, 0.04], [2.0, 4.0]), resplits=25)
    (row,) = table.iter_rows(named=True)
    assert row["set_size"] == 3.0
    assert row["set_size_sd"] == pytest.approx(2**0.5)
    assert row["coverage"] == pytest.approx(0.91)
    # sqrt(0.03² / 25 + 0.04² / 25) / 2 = 0.05 / 5 / 2
    assert row["coverage_se"] == pytest.approx(0.005)
    assert row["min_client_coverage"] == 1.0
    assert row["accuracy"] == 0.125
    assert row["seeds"] == 2
    assert not row["below"]


@pytest.mark.parametrize(("coverage", "below"), [(0.8851, False), (0.8849, True), (0.99, False)])
def test_the_mark_stands_beyond_three_standard_errors(coverage, below):
    # The level is 0.9 and the error 0.005, so the mark begins under 0.885.
    table = summarise(*tables([coverage] * 2, [0.03, 0.04], [2.0, 4.0]), resplits=25)
    assert table["below"].to_list() == [below]


def test_one_seed_has_no_spread_but_an_error():
    table = summarise(*tables([0.9], [0.05], [2.0]), resplits=100)
    assert table["set_size_sd"].to_list() == [None]
    assert table["coverage_se"].to_list() == pytest.approx([0.005])


@pytest.mark.parametrize("missing", [None, math.nan])
def test_one_resplit_takes_the_spread_that_theory_gives(missing):
    spreads = [beta_binomial(0.1, 99, m)[1] for m in (50, 100)]
    error = math.hypot(*spreads) / 2
    for short, below in ((2.9, False), (3.1, True)):
        coverage = 0.9 - short * error
        table = summarise(*tables([coverage] * 2, [missing] * 2, [2.0, 4.0]), resplits=1)
        assert table["coverage_se"].to_list() == pytest.approx([error])
        assert table["below"].to_list() == [below]


def test_a_measured_spread_is_kept_beside_a_missing_one():
    table = summarise(*tables([0.9] * 2, [0.03, math.nan], [2.0, 4.0]), resplits=1)
    error = math.hypot(0.03, beta_binomial(0.1, 99, 100)[1]) / 2
    assert table["coverage_se"].to_list() == pytest.approx([error])


def test_cells_stay_apart_and_in_order():
    first, second = tables([0.9], [0.1], [1.0], alpha=0.2), tables([0.8], [0.1], [5.0], alpha=0.1)
    results, groups = (pl.concat(pair) for pair in zip(first, second, strict=True))
    table = summarise(results, groups, resplits=4)
    assert table["alpha"].to_list() == [0.2, 0.1]
    assert table["set_size"].to_list() == [1.0, 5.0]
