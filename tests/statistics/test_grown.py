"""A graph that grows by as many nodes as it had: thresholds of calibration nodes that are scored
anew hold for nodes that join as the old ones did, and a warning tells where some do not.

Which nodes were there at first is drawn anew each time, so that calibration nodes and arrivals are
exchangeable in the grown graph. Every node has twice the neighbours then, and tells its label
better: the old thresholds give sets that are too large.
"""

from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from fedcover import Config, run
from fedcover.graphs.assemble import assemble

ALPHA, DRAWS, NODES, CLIENTS = 0.1, 100, 600, 2
CONFIG = Config(
    partition="given",
    methods=("fed",),
    alphas=(ALPHA,),
    seeds=1,
    rounds=20,
    hidden=8,
    test=0,
    resplits=1,
)


class Found(NamedTuple):
    """Of one draw: arrivals' coverage anew and with the old threshold, the upper end of the band,
    and what arrivals and the user are told."""

    coverage: float
    stale: float
    slack: float
    promise: str
    notes: tuple[str, ...]


def grow(draw: int, noisier: float = 1.0, kept: float = 1.0) -> Found:
    """A graph of some of the nodes, and then of all; arrivals' features may be noisier, and only
    some of their edges kept."""
    rng = np.random.default_rng([21, draw])
    client = np.repeat(np.arange(CLIENTS), NODES)
    y, total = rng.integers(0, 3, CLIENTS * NODES), CLIENTS * NODES
    old = rng.random(total) < 0.5
    noise = np.array([0.8, 1.6])[client] * np.where(old, 1.0, noisier)
    x = 1.5 * np.eye(3)[y] + noise[:, None] * rng.normal(size=(total, 3))
    source, target = rng.integers(0, total, (2, 30 * NODES))
    likes = (y[source] == y[target]) | (rng.random(len(source)) < 0.2)
    likes &= (old[source] & old[target]) | (rng.random(len(source)) < kept)
    edges = np.stack([source, target])[:, likes & (client[source] == client[target])]

    def graph(there: np.ndarray) -> object:
        place = np.cumsum(there) - 1
        return assemble(
            x[there],
            place[edges[:, there[edges].all(axis=0)]],
            np.where(old, y, -1)[there],
            name="grown",
            label_names=["a", "b", "c"],
            node_ids=np.flatnonzero(there),
            client=client[there],
            client_names=["easy", "hard"],
        )

    (predictor,) = run(graph(old), CONFIG).predictors
    whole = graph(np.ones(total, dtype=bool))
    anew = predictor.recalibrated(whole)
    true = pl.Series(["a", "b", "c"]).gather(y)

    def covered(table: pl.DataFrame) -> float:
        label = true.gather(table["node"].cast(pl.Int64))
        return float(table.select(pl.col("set").list.contains(label)).to_series().mean())

    now = anew.predict(whole, ALPHA, only="new", allow_empty=True)
    stale = predictor.predict(whole, ALPHA, only="new", allow_empty=True)
    (promise,) = now["promise"].unique()
    calib = anew.calibrations["lac"].client
    slack = 2 * max(
        (~old & (client == k)).sum() / (~old).sum() / (calib == k).sum() for k in range(CLIENTS)
    )
    assert anew.recalibration is not None
    return Found(covered(now), covered(stale), slack, promise, anew.recalibration.notes)


def mean(values: list[float]) -> tuple[float, float]:
    """And its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


@pytest.fixture(scope="module")
def alike() -> list[Found]:
    return [grow(draw) for draw in range(DRAWS)]


def test_arrivals_that_join_as_old_nodes_did_are_covered_within_the_band(alike):
    coverage, error = mean([found.coverage for found in alike])
    assert error < 0.004
    low, high = 1 - ALPHA, 1 - ALPHA + max(found.slack for found in alike)
    assert low - 3 * error <= coverage <= high + 3 * error


def test_the_old_threshold_fails_the_same_check(alike):
    coverage, error = mean([found.stale for found in alike])
    assert coverage > 1 - ALPHA + max(found.slack for found in alike) + 3 * error


def test_they_are_hardly_ever_called_doubtful(alike):
    warned = [found for found in alike if found.notes]
    assert len(warned) <= 5  # P(Bin(100, 0.01) > 5) = 0.0005
    for found in alike:
        doubtful = "yes, on average over new nodes" not in found.promise
        assert doubtful == bool(found.notes)


def test_arrivals_with_fewer_neighbours_are_not_covered_and_that_is_said():
    fewer = [grow(draw, kept=0.3) for draw in range(20)]
    coverage, error = mean([found.coverage for found in fewer])
    assert coverage < 1 - ALPHA - 3 * error
    for found in fewer:
        assert found.promise.startswith("doubtful: new nodes differ from the calibration nodes")
        (note,) = found.notes
        assert "the level is doubtful for them" in note


def test_the_warning_needs_no_label_and_so_it_can_stay_away():
    """Noisier features, which a mean over neighbours hides: covered 0.82, told in 8 of 20. So the
    promise for new nodes names its condition, warning or not."""
    noisier = [grow(draw, noisier=2.5) for draw in range(20)]
    coverage, error = mean([found.coverage for found in noisier])
    assert coverage < 1 - ALPHA - 3 * error
    unwarned = [found for found in noisier if not found.notes]
    assert 0 < len(unwarned) < len(noisier)
    assert all("if they join as the old ones did" in found.promise for found in unwarned)
