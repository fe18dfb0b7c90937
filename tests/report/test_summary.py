import math

import polars as pl
import pytest

from fedcover.conformal import beta_binomial, beta_binomial_interval
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
            | {"singleton_rate": 0.5, "empty_rate": 0.0, "coverage_split": coverages[s]}
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


def test_the_interval_is_that_of_all_drawn_splits_or_of_the_one_that_was_given():
    results, groups = tables([0.86, 0.94], [0.03, 0.04], [2.0, 4.0])
    drawn = summarise(results, groups, 25, {"split": "drawn"}).row(0, named=True)
    given = summarise(results, groups, 25, {"split": "given"}).row(0, named=True)
    assert drawn["coverage_split"] == pytest.approx((0.86 * 50 + 0.94 * 100) / 150)
    assert drawn["split_low"] == beta_binomial_interval([99] * 2, [50, 100], [90.0] * 2)[0]
    assert given["split_low"] == beta_binomial_interval([99], [50], [90.0])[0]
    high = [drawn["high"] * 100] * 2
    assert drawn["split_high"] == beta_binomial_interval([99] * 2, [50, 100], high)[1]


def test_clients_that_are_asked_more_than_they_calibrate_widen_the_interval():
    info = {"seeds": [0, 1], "effective": {"fed": [[20, 50], [20, 100]]}}
    row = summarise(*tables([0.9] * 2, [0.03] * 2, [2.0] * 2), 25, info).row(0, named=True)
    assert row["split_low"] == beta_binomial_interval([20] * 2, [50, 100], [0.9 * 21] * 2)[0]


def test_rows_of_an_earlier_version_are_judged_by_resplits():
    results, groups = tables([0.9] * 2, [0.03, 0.04], [2.0, 4.0])
    row = summarise(results.drop("coverage_split"), groups, 25).row(0, named=True)
    assert (row["coverage_split"], row["split_low"], row["status"]) == (None, None, "inside")
