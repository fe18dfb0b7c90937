import polars as pl
import pytest

from fedcover.conformal import coverage_band
from fedcover.errors import DataError
from fedcover.experiment.summary import CELL, summarise
from fedcover.report.cells import MOST_CLIENTS, SETTING, band, cells, status, worst_client
from fedcover.report.folder import read_folder
from fedcover.report.payload import run_payload


def grid_cells(rows: pl.DataFrame) -> list:
    key = [*SETTING, *CELL, "seed"]
    groups = rows.select(*key, "groups").explode("groups").unnest("groups")
    return cells(rows.drop("groups"), groups, resplits=100)


@pytest.mark.parametrize(
    ("coverage", "high", "low", "expected"),
    [
        (0.8969, 0.91, 0.9, "below"),
        (0.8971, 0.91, 0.9, "inside"),  # up to three standard errors of 0.001
        (0.9129, 0.91, 0.9, "inside"),
        (0.9131, 0.91, 0.9, "above"),
        (0.99, None, 0.9, "inside"),  # ties: no upper end
        (0.5, None, None, "none"),
    ],
)
def test_status_is_the_runs_own_rule(coverage, high, low, expected):
    cell = {"coverage": coverage, "coverage_se": 0.001, "low": low, "high": high}
    assert status(cell) == expected


@pytest.mark.parametrize(
    ("score", "rule", "expected"),
    [
        ("lac", "exact", coverage_band(0.1, 995, 5)),
        ("dlac", "exact", coverage_band(0.1, 995, 5)),
        ("aps-det", "exact", (0.9, None)),
        ("lac", "mixture", (0.9, None)),
        ("lac", "average", (None, None)),
        ("lac", "tdigest", (None, None)),
        ("lac", "pooled", (None, None)),
    ],
)
def test_the_band_is_theorem_1s_where_it_applies(score, rule, expected):
    cell = {"score": score, "quantile": rule, "alpha": 0.1, "clients": 5}
    assert band(cell, 995.0) == pytest.approx(expected)


def test_cells_of_a_run_are_its_summary(toy_folder):
    stored = read_folder(toy_folder)
    shown = run_payload(stored)["cells"]
    summary = summarise(stored.results, stored.groups, 9)
    for name in ("method", "score", "quantile", "set_size", "set_size_sd", "coverage_se"):
        assert shown[name] == summary[name].to_list(), name
    assert len(shown["method"]) == 3 * 2 * 2 * 2
    rules = [s == "none" for s in shown["status"]]
    assert rules == [rule == "average" for rule in shown["quantile"]]


def test_a_row_that_occurs_twice_is_refused(grid_rows):
    twice = pl.concat([grid_rows, grid_rows.head(1)])
    with pytest.raises(DataError, match=r"two rows for .*dataset cora, clients 3.*seed 0"):
        grid_cells(twice)


def test_the_worst_client_is_one_seeds_or_the_mean_of_given_clients():
    rows = [
        {"group": "a", "seed": 0, "n_test": 10.0, "coverage": 0.7},
        {"group": "a", "seed": 1, "n_test": 20.0, "coverage": 0.95},
        {"group": "b", "seed": 0, "n_test": 10.0, "coverage": 0.8},
        {"group": "b", "seed": 1, "n_test": 10.0, "coverage": 0.8},
    ]
    cut = {"groups": {"client": rows}, "partition": "metis"}
    assert worst_client(cut) == rows[0]
    given = worst_client(cut | {"partition": "given"})
    assert (given["group"], given["seed"], given["n_test"]) == ("b", None, 10.0)
    assert given["coverage"] == pytest.approx(0.8)
    assert worst_client({"groups": {}, "partition": "metis"}) is None


def test_of_very_many_clients_the_worst_are_kept(grid_rows):
    row = grid_rows.row(0, named=True)
    row["groups"] = [
        {"kind": "client", "group": str(k), "n_test": 5.0, "coverage": k / 500, "set_size": 1.0}
        for k in range(400)
    ]
    kept = grid_cells(pl.DataFrame([row]))[0]["groups"]["client"]
    assert [held["group"] for held in kept] == [str(k) for k in range(MOST_CLIENTS)]
