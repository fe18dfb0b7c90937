"""Sums over far ends treat all nodes alike: no label that must be hidden shapes a score, and sets
keep their promise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
import torch
from torch_geometric.data import Data

from fedcover import Config, load, run
from fedcover.algorithm.session import Session
from fedcover.carriers.loopback import Loopback
from fedcover.config import BEST_LINKED, NeighbourSettings
from fedcover.config.names import SUMMARIES
from fedcover.graphs import Role
from fedcover.party.calibration import scores
from fedcover.party.neighbours import rows_of
from fedcover.plans import SUMS
from fedcover.report.summary import STANDARD_ERRORS, summarise

from ..party.linked import METHOD, parties_of, random_graph  # noqa: TID252

SCORES = ("lac", "aps", "daps")


@dataclass
class Found:
    """What the parties of a job received, and their scores before calibration."""

    received: list[bytes]
    scores: list[bytes]
    sets: list[bytes]


CASES = {
    "own sums": {},
    "shared sums": {"shared": True, "standardise": True},
    "noise": {"shared": True, "standardise": True, "epsilon": 8.0, "cap": 3},
}


def found(
    graph: Data,
    values: str,
    case: str = "own sums",
    matching: str = "private",
    method: str = METHOD,
) -> Found:
    changes = {"values": values, "scores": SCORES, "matching": matching, "methods": (method,)}
    parties = parties_of(graph, **changes, **CASES[case])
    carrier, one = Loopback(parties), parties[0]
    names = [party.data.name for party in parties]
    size = one.classes, one.data.x.shape[1]
    session = Session(one.config, *size, carrier.census, names, impute="missing" in graph)
    carrier.carry(session.prepare())
    carrier.carry(session.method(method))
    row = [rows_of(party) for party in parties]
    assert any((np.bincount(own[own >= 0]) > 1).any() for own in row) == ("shared" in CASES[case])
    arrays = ("node", "mean", "number", "weight")
    told = [party.told[SUMS][name].tobytes() for party in parties for name in arrays]
    made = [scores(party, method, name).tobytes() for party in parties for name in SCORES]
    return Found(told, made, [own.tobytes() for party in parties for own in party.sets[method]])


@pytest.fixture(scope="module")
def graph() -> Data:
    """Numbers on several scales, a fifth of them missing."""
    graph = random_graph(edges=75, real=True)
    x = graph.x.numpy() * np.logspace(0, 2, graph.x.shape[1], dtype=np.float32)
    gaps = np.random.default_rng(3).random(x.shape) < 0.2
    x[gaps] = 0
    graph.x, graph.numeric = torch.from_numpy(x), torch.ones(x.shape[1], dtype=torch.bool)
    graph.missing = torch.from_numpy(np.stack(np.nonzero(gaps)))
    return graph


def with_noise(graph: Data, *roles: Role) -> Data:
    """The same graph, with labels of these roles drawn anew."""
    other, split = graph.clone(), graph.split.numpy()
    chosen = torch.from_numpy(np.isin(split, [int(role) for role in roles]))
    drawn = torch.from_numpy(np.random.default_rng(9).integers(0, 3, int(chosen.sum())))
    other.y[chosen] = drawn
    assert not torch.equal(other.y, graph.y)
    return other


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("values", SUMMARIES)
def test_noise_for_calibration_and_test_labels_changes_no_sum_and_no_score(
    graph: Data, values: str, case: str
) -> None:
    other = with_noise(graph, Role.CALIB, Role.TEST)
    plain, noisy = found(graph, values, case), found(other, values, case)
    assert plain.received == noisy.received
    assert plain.scores == noisy.scores
    assert plain.sets != noisy.sets  # the noise did arrive: thresholds are others


@pytest.mark.parametrize("values", SUMMARIES)
def test_noise_for_training_labels_is_noticed(graph: Data, values: str) -> None:
    plain, noisy = found(graph, values), found(with_noise(graph, Role.TRAIN), values)
    # Features know no label; a model that makes summaries does.
    assert (plain.received == noisy.received) == (values == "features")
    assert plain.scores != noisy.scores


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("values", SUMMARIES)
def test_roles_of_calibration_and_test_nodes_make_no_difference(
    graph: Data, values: str, case: str
) -> None:
    same_for_all_roles(graph, values, case)


def test_nor_do_they_with_the_default_recipe(graph: Data) -> None:
    same_for_all_roles(graph, "features", "shared sums", BEST_LINKED)


def same_for_all_roles(graph: Data, values: str, case: str, method: str = METHOD) -> None:
    plain, split = found(graph, values, case, method=method), graph.split.numpy()
    swapped, mixed = split.copy(), split.copy()
    swapped[split == Role.CALIB], swapped[split == Role.TEST] = Role.TEST, Role.CALIB
    pool = np.flatnonzero(split >= Role.CALIB)
    mixed[pool] = np.random.default_rng(1).permutation(split[pool])
    for roles in (swapped, mixed):
        assert not np.array_equal(roles, split)
        other = graph.clone()
        other.split = torch.from_numpy(roles)
        exchanged = found(other, values, case, method=method)
        assert exchanged.received == plain.received
        assert exchanged.scores == plain.scores


def test_matching_changes_no_score(graph: Data) -> None:
    assert found(graph, "features") == found(graph, "features", matching="open")


# Coverage on Cora, cut at random: nine of ten edges end at another party.

ALPHAS = (0.05, 0.1, 0.2)
SETTINGS = {
    "clients": 10,
    "partition": "random",
    "cut_edges": "known",
    "scores": ("aps", "lac"),
    "alphas": ALPHAS,
    "rounds": 20,
}


@pytest.fixture(scope="module")
def cora() -> Data:
    return load("cora")


@pytest.fixture(scope="module")
def cells(cora: Data) -> pl.DataFrame:
    """Every cell of the guarantee with its band."""
    tables = []
    for values in ("features", "labels"):
        own = {"seeds": 2, "resplits": 100, "neighbour": NeighbourSettings(values=values)}
        config = Config(**SETTINGS, **own, methods=("fed", METHOD))
        finished = run(cora, config)
        table = summarise(finished.results, finished.groups, config.resplits)
        least = min(n for pairs in finished.info["effective"].values() for n, _ in pairs)
        level = 1 - pl.col("alpha")
        ends = {"low": level, "high": level + 2 / least, "values": pl.lit(values)}
        tables.append(table.with_columns(**ends))
    return pl.concat(tables)


def test_coverage_over_resplits_lies_in_the_band(cells: pl.DataFrame) -> None:
    assert len(cells) == 2 * 2 * 2 * len(ALPHAS)
    assert cells["coverage_se"].max() < 0.004
    error = STANDARD_ERRORS * pl.col("coverage_se")
    below = pl.col("coverage") < pl.col("low") - error
    above = pl.col("coverage") > pl.col("high") + error
    columns = ("values", "method", "score", "alpha", "coverage", "coverage_se")
    assert cells.filter(below | above).select(*columns).rows() == []


def test_sets_are_smaller_with_sums_over_far_ends(cells: pl.DataFrame) -> None:
    lac = cells.filter(score="lac", alpha=0.05).pivot("method", index="values", values="set_size")
    by_values = {row["values"]: row for row in lac.rows(named=True)}
    for row in by_values.values():
        assert row[METHOD] < 0.9 * row["fed"]


def test_one_split_of_each_seed_is_covered_as_often_as_it_should_be(cora: Data) -> None:
    """Not re-splits of one model's scores, but splits that were drawn before training."""
    own = {"clients": 5, "rounds": 8, "scores": ("lac",), "seeds": 12, "resplits": 2}
    finished = run(cora, Config(**(SETTINGS | own), methods=(METHOD,)))
    for alpha in ALPHAS:
        held = finished.results.filter(alpha=alpha)["coverage_split"]
        error = held.std() / np.sqrt(len(held))
        assert error < 0.01
        assert 1 - alpha - 3 * error <= held.mean() <= 1 - alpha + 0.01 + 3 * error
