"""A whole job without a network: as a simulation has it, and as without a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from numpy.testing import assert_allclose

from fedcover.carriers.network.checkpoint import Checkpoint
from fedcover.carriers.network.coordinate import coordinate
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.job import Assignment, Job
from fedcover.carriers.network.member import InProcess
from fedcover.carriers.network.messages import Order, Reply
from fedcover.config import Config, NeighGenSettings, PersonalSettings
from fedcover.graphs import load
from fedcover.graphs.sites import site_folders
from fedcover.simulation import run

from .conftest import make_job, members, only, settings

ALL = {
    "methods": ("loc", "fed+prior", "gen", "fed+mix"),
    "scores": ("lac", "aps-det"),
    "quantiles": ("exact", "average", "tdigest"),
    "personal": PersonalSettings(tune_rounds=5, local_rounds=7),
}


def sets_of(sites: Path) -> pl.DataFrame:
    files = sorted(sites.glob("*/results/*/sets-*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files])


def test_it_gives_what_a_simulation_gives(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    outcomes = coordinator(**ALL, seeds=2, stride=4).run()
    graph = load(sites)
    whole = run(graph, Config(**settings(**ALL, seeds=2)))
    keys = ["method", "score", "quantile", "alpha", "seed", "node"]
    for place, (seed, found) in enumerate(outcomes.items()):
        for method, outcome in found.items():
            rows = whole.results.filter(pl.col("method") == method, pl.col("seed") == seed)
            q_hats = [threshold.pooled.q_hat for threshold in outcome.calibrated.thresholds]
            assert_allclose(q_hats, rows["q_hat"], rtol=0, atol=2e-6)
            chosen = whole.info["chosen_on_validation"][method]
            assert outcome.chosen["best_round"] == chosen["best_round"][place]
            fitted = outcome.calibrated.temperature
            assert_allclose(fitted, chosen["temperature"][place], rtol=1e-5)
    here = whole.sets.with_columns(pl.col("node").str.split("/").list.last())
    ours = sets_of(sites).select(*keys, "set", "covered").sort(keys)
    assert ours.equals(here.select(*keys, "set", "covered").sort(keys))


def test_the_same_job_twice_is_the_same(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    first = coordinator(**ALL).run()
    before = sets_of(sites)
    second = coordinator(**ALL).run()
    for seed, found in first.items():
        for method, outcome in found.items():
            again = second[seed][method].calibrated.thresholds
            assert outcome.calibrated.thresholds == again
    after = sets_of(sites)
    assert len(after) == 2 * len(before)  # two jobs, two folders
    assert after.unique().sort(after.columns[:6]).equals(before.sort(before.columns[:6]))


class CrashError(Exception):
    """The coordinator is killed."""


class Dying(InProcess):
    """Kills the coordinator at the n-th order, before or after the sites have answered it."""

    def __init__(self, parts: list, at: int, after: int) -> None:
        super().__init__(parts)
        self._left, self._after = at, after

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Iterator[tuple[str, Reply]]:
        self._left -= 1
        for answered, pair in enumerate(super().exchange(orders, seconds)):
            if self._left == 0 and answered == self._after:
                raise CrashError
            yield pair


def test_a_coordinator_that_is_killed_goes_on_to_the_same_result(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    whole = assignment(**ALL)
    coordinate(whole, InProcess(members(sites)))
    expected = (whole.out / "results.csv").read_bytes()
    rng = np.random.default_rng(5)
    for at in rng.choice(np.arange(1, 77), 10, replace=False).tolist():  # of 76 orders
        again = Assignment(whole.job, whole.schema, whole.out.with_name(f"out-{at}"))
        moments = [at, int(rng.integers(1, 20))]
        for moment in moments:
            try:
                coordinate(again, Dying(members(sites), moment, int(rng.integers(0, 3))))
            except CrashError:
                continue
        coordinate(again, InProcess(members(sites)))
        found = (again.out / "results.csv").read_bytes().replace(f"out-{at}".encode(), b"out")
        assert found == expected, moments
        assert not again.beside.exists()


@pytest.mark.parametrize("methods", [ALL["methods"], ("fedsage+", "fedsage++tuned")])
def test_a_site_that_is_killed_goes_on_to_the_same_result(
    methods: tuple[str, ...], sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    """Every order is answered by a new process, so to speak."""

    class Forgetful(InProcess):
        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            self._members = {member.name: member for member in members(sites)}
            yield from super().exchange(orders, seconds)

    neighgen = NeighGenSettings(warm_up=2, rounds=2, local_epochs=1, latent=8, hidden=8)
    changes = {**ALL, "methods": methods, "seeds": 2, "stride": 2, "neighgen": neighgen}
    expected = coordinator(**changes).run()
    found = coordinator(Forgetful(members(sites)), **changes).run()
    for seed, own in expected.items():
        for method, outcome in own.items():
            other = found[seed][method]
            assert other.calibrated.thresholds == outcome.calibrated.thresholds
            assert other.models.keys() == outcome.models.keys()
            for kind, trained in outcome.models.items():
                assert other.models[kind].losses == trained.losses
                if trained.model is None:
                    continue
                pairs = zip(other.models[kind].model.weights, trained.model.weights, strict=True)
                assert all(torch.equal(left, right) for left, right in pairs)


def test_other_settings_are_not_mixed_with_a_checkpoint(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    first = assignment(rounds=3)
    with pytest.raises(CrashError):
        coordinate(first, Dying(members(sites), 2, 0))
    other = assignment(rounds=5)
    with pytest.raises(Exception, match="other settings"):
        coordinate(other, InProcess(members(sites)))


def test_roles_are_drawn_where_there_is_no_split_column(
    sites: Path, coordinator: Callable[..., Coordinator]
) -> None:
    for folder in site_folders(sites):
        nodes = pl.read_csv(folder / "nodes.csv").drop("split")
        nodes.write_csv(folder / "nodes.csv")
    outcomes = coordinator(methods=("fed",)).run()
    thresholds = only(outcomes)["fed"].calibrated.thresholds
    assert all(np.isfinite(t.pooled.q_hat) for t in thresholds[-1:])


def test_checkpoints_forget_without_a_folder() -> None:
    store = Checkpoint()
    store.write("a", {"x": np.zeros(2)})
    assert store.read("a") is None


def test_a_job_without_enough_sites_is_refused() -> None:
    with pytest.raises(Exception, match="begins with 2 sites"):
        make_job(sites=2, least=3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": ("central",)}, "central"),
        ({"methods": ("restored",)}, "restored"),
        ({"partition": "metis"}, "metis"),
        ({"client_shares": (1, 2)}, "each of the 3 sites"),
        ({"calibrate": "group"}, "go together"),
        ({"group": "ward"}, "go together"),
        ({"average": "best"}, "best"),
        ({"timeout": 0.0}, "timeout"),
        ({"missing": "drop"}, "drop"),
    ],
)
def test_what_a_federation_does_not_know_is_named(changes: dict, words: str) -> None:
    with pytest.raises(Exception, match=words):
        make_job(**changes)


def test_a_job_is_its_default() -> None:
    assert Job(sites=2).config.methods == ("gen",)
