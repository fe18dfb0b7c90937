"""A whole job without a network: as the in-process engine has it, and as without a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose

from fedcover.config import Config
from fedcover.simulation import run
from fedcover.simulation.evaluation import Judge
from fedcover.simulation.repetition import prepare
from fedcover.federation import InProcess
from fedcover.federation.ledger import Ledger
from fedcover.graphs import load
from fedcover.graphs.sites import site_folders
from fedcover.parties.checkpoint import Checkpoint
from fedcover.parties.coordinate import Assignment, coordinate
from fedcover.parties.drive import Driver
from fedcover.parties.job import Job
from fedcover.parties.loopback import Loopback
from fedcover.parties.messages import Order, Reply

from .conftest import NAMES, make_job, members, settings

ALL = {
    "methods": ("loc", "fed+prior", "gen"),
    "scores": ("lac", "aps-det"),
    "quantiles": ("exact", "average", "tdigest"),
}


def sets_of(sites: Path) -> pl.DataFrame:
    files = sorted(sites.glob("*/results/*/sets-*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files])


def test_it_gives_what_the_in_process_engine_gives(
    sites: Path, driver: Callable[..., Driver]
) -> None:
    outcomes = driver(**ALL).run()
    graph = load(sites)
    whole = run(graph, Config(**settings(**ALL)))
    keys = ["method", "score", "quantile", "alpha", "node"]
    for method, outcome in outcomes.items():
        rows = whole.results.filter(pl.col("method") == method)
        q_hats = [threshold.q_hat for threshold in outcome.thresholds]
        assert_allclose(q_hats, rows["q_hat"], rtol=0, atol=2e-6)
        chosen = whole.info["chosen_on_validation"][method]
        assert outcome.chosen["best_round"] == chosen["best_round"][0]
        assert_allclose(outcome.chosen["temperature"], chosen["temperature"][0], rtol=1e-5)
    here = whole.sets.with_columns(pl.col("node").str.split("/").list.last())
    ours = sets_of(sites).select(*keys, "set", "covered").sort(keys)
    assert ours.equals(here.select(*keys, "set", "covered").sort(keys))


@pytest.mark.parametrize("method", ["fed", "gen"])
def test_weights_are_those_of_the_in_process_engine(
    method: str, sites: Path, driver: Callable[..., Driver]
) -> None:
    from fedcover.config import recipe_of
    from fedcover.run.training import Trainer

    ours = driver(methods=(method,), rounds=8).run()[method].weights
    graph = load(sites)
    config = Config(**settings(methods=(method,), rounds=8))
    trainer = Trainer(
        [prepare(graph, config, 0)], config, InProcess(), 3, lambda *_: None, lambda _: None
    )
    trainer.outcomes(recipe_of(method))
    (model,) = [m for (_, kind), m in trainer._models.items() if kind == "shared"]
    for name, value in (ours or {}).items():
        assert_allclose(value[0], getattr(model.trained[0].weights[0], name), rtol=0, atol=1e-4)


def test_thresholds_are_those_of_the_same_scores_bit_for_bit(
    sites: Path, driver: Callable[..., Driver]
) -> None:
    """The sites' own logits, judged in one process."""
    leader = driver(**ALL)
    parts = leader._transport._members  # type: ignore[attr-defined]
    outcomes = leader.run()
    graph, config = load(sites), Config(**settings(**ALL))
    judge = Judge(prepare(graph, config, 0), config)
    logits = np.concatenate([parts[name]._part._outputs[1] for name in NAMES])
    evaluation = judge.evaluate(logits, Ledger())
    ours = [threshold.q_hat for threshold in outcomes["gen"].thresholds]
    assert ours == [row["q_hat"] for row in evaluation.results]


def test_the_same_job_twice_is_the_same(sites: Path, driver: Callable[..., Driver]) -> None:
    first = driver(**ALL).run()
    before = sets_of(sites)
    second = driver(**ALL).run()
    for method in first:
        assert first[method].thresholds == second[method].thresholds
    after = sets_of(sites)
    assert len(after) == 2 * len(before)  # two jobs, two folders
    assert after.unique().sort(after.columns[:6]).equals(before.sort(before.columns[:6]))


class CrashError(Exception):
    """The coordinator is killed."""


class Dying(Loopback):
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
    coordinate(whole, Loopback(members(sites)))
    expected = (whole.out / "results.csv").read_bytes()
    rng = np.random.default_rng(5)
    for at in rng.choice(np.arange(1, 40), 8, replace=False).tolist():
        again = Assignment(whole.job, whole.schema, whole.out.with_name(f"out-{at}"))
        moments = [at, int(rng.integers(1, 20))]
        for moment in moments:
            try:
                coordinate(again, Dying(members(sites), moment, int(rng.integers(0, 3))))
            except CrashError:
                continue
        coordinate(again, Loopback(members(sites)))
        found = (again.out / "results.csv").read_bytes().replace(f"out-{at}".encode(), b"out")
        assert found == expected, moments
        assert not again.beside.exists()


def test_a_site_that_is_killed_goes_on_to_the_same_result(
    sites: Path, driver: Callable[..., Driver]
) -> None:
    """Every order is answered by a new process, so to speak."""

    class Forgetful(Loopback):
        def exchange(
            self, orders: Mapping[str, Order], seconds: float
        ) -> Iterator[tuple[str, Reply]]:
            self._members = {member.name: member for member in members(sites)}
            yield from super().exchange(orders, seconds)

    expected = driver(**ALL).run()
    found = driver(Forgetful(members(sites)), **ALL).run()
    for method, outcome in expected.items():
        assert found[method].thresholds == outcome.thresholds
        for name, value in (outcome.weights or {}).items():
            assert np.array_equal(found[method].weights[name], value)


def test_other_settings_are_not_mixed_with_a_checkpoint(
    sites: Path, assignment: Callable[..., Assignment]
) -> None:
    first = assignment(rounds=3)
    with pytest.raises(CrashError):
        coordinate(first, Dying(members(sites), 2, 0))
    other = assignment(rounds=5)
    with pytest.raises(Exception, match="other settings"):
        coordinate(other, Loopback(members(sites)))


def test_roles_are_drawn_where_there_is_no_split_column(
    sites: Path, driver: Callable[..., Driver]
) -> None:
    for folder in site_folders(sites):
        nodes = pl.read_csv(folder / "nodes.csv").drop("split")
        nodes.write_csv(folder / "nodes.csv")
    outcomes = driver(methods=("fed",)).run()
    assert all(np.isfinite(t.q_hat) for t in outcomes["fed"].thresholds[-1:])


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
        ({"methods": ("fed+mix",)}, r"fed\+mix"),
        ({"scores": ("daps",)}, "daps"),
        ({"quantiles": ("mixture",)}, "mixture"),
        ({"average": "best"}, "best"),
        ({"timeout": 0.0}, "timeout"),
        ({"seeds": 2}, "seeds is 2"),
    ],
)
def test_what_a_federation_does_not_know_is_named(changes: dict, words: str) -> None:
    with pytest.raises(Exception, match=words):
        make_job(**changes)


def test_a_job_is_its_default() -> None:
    assert Job(sites=2).config.methods == ("gen",)
