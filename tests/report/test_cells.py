import polars as pl
import pytest

from fedcover.conformal import coverage_band
from fedcover.errors import DataError
from fedcover.report.cells import MOST_CLIENTS, SETTING, cells, worst_group
from fedcover.report.folder import read_folder
from fedcover.report.payload import run_payload
from fedcover.report.summary import CELL, resplit_status, status, summarise


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
def test_resplits_are_held_against_the_band(coverage, high, low, expected):
    cell = {"coverage": coverage, "coverage_se": 0.001, "low": low, "high": high}
    assert resplit_status(cell) == expected
    assert status(cell | {"coverage_split": None}) == expected  # of an earlier version


@pytest.mark.parametrize(
    ("score", "rule", "expected"),
    [
        ("lac", "exact", (0.9, 0.9 + 2 / 995)),
        ("dlac", "theorem1", coverage_band(0.1, [199] * 5, "theorem1")),
        ("aps-det", "exact", (0.9, None)),
        ("lac", "average", (None, None)),
        ("lac", "tdigest", (None, None)),
        ("lac", "pooled", (None, None)),
    ],
)
def test_a_cells_band_is_theorem_1s_where_it_applies(grid_rows, score, rule, expected):
    row = grid_rows.row(0, named=True)
    row |= {"score": score, "quantile": rule, "clients": 5, "n_calibration": 995}
    (cell,) = grid_cells(pl.DataFrame([row]))
    assert (cell["low"], cell["high"]) == pytest.approx(expected)


def test_cells_of_a_run_are_its_summary(toy_folder):
    stored = read_folder(toy_folder)
    shown = run_payload(stored)["cells"]
    summary = summarise(stored.results, stored.groups, 9, stored.info)
    for name in ("method", "score", "quantile", "set_size", "set_size_sd", "status"):
        assert shown[name] == summary[name].to_list(), name
    assert len(shown["method"]) == 3 * 2 * 2 * 2
    rules = [s == "none" for s in shown["status"]]
    assert rules == [rule == "average" for rule in shown["quantile"]]


def test_the_worst_class_is_that_of_all_seeds(grid_rows):
    by_seed = client_rows({"a": (0.95, 0.75), "b": (0.8, 0.82)})
    row = grid_rows.row(0, named=True)
    rows = [
        row | {"seed": seed, "groups": [own | {"kind": "class"} for own in groups]}
        for seed, groups in enumerate(by_seed)
    ]
    (cell,) = grid_cells(pl.DataFrame(rows))
    coverage = cell["worst_class"].pop("coverage")
    assert cell["worst_class"] == {"group": "b", "seed": None, "n_test": 5.0, "among": 2}
    assert coverage == pytest.approx(0.81)


def test_a_row_that_occurs_twice_is_refused(grid_rows):
    twice = pl.concat([grid_rows, grid_rows.head(1)])
    with pytest.raises(DataError, match=r"two rows for .*dataset cora, clients 3.*seed 0"):
        grid_cells(twice)


def client_rows(coverage):
    """A cell's rows of kind client: ``{name: (coverage in seed 0, in seed 1, …)}``."""
    names = ("kind", "group", "n_test", "coverage", "set_size")
    seeds = range(len(next(iter(coverage.values()))))
    return [
        [
            dict(zip(names, ("client", name, 5.0, own[seed], 1.0), strict=True))
            for name, own in coverage.items()
        ]
        for seed in seeds
    ]


def cell_of(grid_rows, coverage, partition):
    row = grid_rows.row(0, named=True) | {"partition": partition}
    by_seed = client_rows(coverage)
    rows = [row | {"seed": seed, "groups": groups} for seed, groups in enumerate(by_seed)]
    (cell,) = grid_cells(pl.DataFrame(rows))
    return cell


def test_the_worst_client_is_one_seeds_or_the_mean_of_given_clients():
    rows = pl.DataFrame(
        {
            "group": ["a", "a", "b", "b"],
            "seed": [0, 1, 0, 1],
            "n_test": [10.0, 20.0, 10.0, 10.0],
            "coverage": [0.7, 0.95, 0.8, 0.8],
        }
    )
    one = worst_group(rows, over_seeds=False)
    assert one == rows.row(0, named=True) | {"among": 4}
    given = worst_group(rows, over_seeds=True)
    assert (given["group"], given["seed"], given["n_test"]) == ("b", None, 10.0)
    assert given["among"] == 2
    assert given["coverage"] == pytest.approx(0.8)
    assert worst_group(None, over_seeds=False) is None
    assert (
        worst_group(rows.with_columns(coverage=pl.lit(None, pl.Float64)), over_seeds=True) is None
    )


def test_of_very_many_clients_the_worst_are_kept(grid_rows):
    cell = cell_of(grid_rows, {str(k): (k / 500,) for k in range(400)}, "metis")
    kept = [held["group"] for held in cell["groups"]["client"]]
    assert kept == [str(k) for k in range(MOST_CLIENTS)]


def test_of_very_many_given_clients_the_worst_is_that_of_the_whole_table(grid_rows):
    coverage = {f"c{k}": (0.95, 0.95) for k in range(98)} | {"x": (0.7, 1.0), "bad": (0.8, 0.8)}
    cell = cell_of(grid_rows, coverage, "given")
    assert (cell["worst"]["group"], cell["worst"]["seed"]) == ("bad", None)
    assert cell["worst"]["coverage"] == pytest.approx(0.8)
    held = cell["groups"]["client"]
    assert [row["coverage"] for row in held if row["group"] == "x"] == [0.7, 1.0]  # all its seeds
    assert len({row["group"] for row in held}) == MOST_CLIENTS


@pytest.mark.parametrize("nothing", [None, float("nan")])
@pytest.mark.parametrize("partition", ["metis", "given"])
def test_clients_without_test_nodes_are_not_the_worst(grid_rows, partition, nothing):
    coverage = {f"c{k}": (nothing,) for k in range(70)} | {"x": (0.5,)}
    cell = cell_of(grid_rows, coverage, partition)
    assert (cell["worst"]["group"], cell["worst"]["coverage"]) == ("x", 0.5)
    assert "x" in {row["group"] for row in cell["groups"]["client"]}


def test_the_worst_of_one_seed_is_shown_even_if_its_number_does_well_in_others(grid_rows):
    coverage = {f"c{k}": (0.9, 0.9) for k in range(70)} | {"x": (0.85, 1.0)}
    cell = cell_of(grid_rows, coverage, "metis")
    assert (cell["worst"]["group"], cell["worst"]["seed"]) == ("x", 0)
    assert "x" in {row["group"] for row in cell["groups"]["client"]}
