"""A small graph that is quick to train on and hard enough that sets differ in size."""

from collections.abc import Callable

import numpy as np
import pytest
from torch_geometric.data import Data

from fedcover import Config
from fedcover.algorithm.session import Outcome
from fedcover.carriers.stacked import Stacked
from fedcover.config import recipe_of
from fedcover.graphs.assemble import assemble
from fedcover.simulation.repetition import Federation, Repetition, federation, prepare
from fedcover.simulation.run import Simulation
from fedcover.training.plan import Plan
from fedcover.training.program import Program

ALPHAS = (0.01, 0.1, 0.3)
SCORES = ("aps", "aps-det", "raps", "lac")
QUANTILES = ("exact", "average", "tdigest")
METHODS = ("loc", "fed", "central")


@pytest.fixture(scope="session")
def make_toy() -> Callable[..., Data]:
    """``make_toy(nodes, **columns)``: three labels, weak features, mostly homophilous edges."""

    def make(nodes: int = 120, **columns: object) -> Data:
        rng = np.random.default_rng(7)
        y = np.arange(nodes) % 3
        source = rng.integers(0, nodes, size=4 * nodes)
        same_label = (source + 3 * rng.integers(1, nodes // 3, size=4 * nodes)) % nodes
        anywhere = rng.integers(0, nodes, size=4 * nodes)
        target = np.where(rng.random(4 * nodes) < 0.3, anywhere, same_label)
        arguments = {
            "x": rng.normal(size=(nodes, 6)) + np.eye(3, 6)[y],
            "edges": np.stack([source, target]),
            "y": y,
            "name": "toy",
            "label_names": ["a", "b", "c"],
            "node_ids": [f"n{i}" for i in range(nodes)],
        }
        return assemble(**(arguments | columns))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def toy(make_toy: Callable[..., Data]) -> Data:
    return make_toy()


@pytest.fixture(scope="session")
def quick() -> Callable[..., Config]:
    """``quick(**changes)``: everything the contract knows, in a second."""

    def make(**changes: object) -> Config:
        settings = {
            "clients": 3,
            "partition": "random",  # equal sizes on every platform
            "methods": METHODS,
            "scores": SCORES,
            "quantiles": QUANTILES,
            "alphas": ALPHAS,
            "seeds": 2,
            "rounds": 4,
            "hidden": 8,
            "lr": 0.01,
            "resplits": 7,
        }
        return Config(**(settings | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Simulation]:
    """``simulate(graph, config)``: all seeds, ready to train methods on."""

    def make(graph: Data, config: Config) -> Simulation:
        repetitions = [prepare(graph, config, seed) for seed in config.seed_range]
        return Simulation(repetitions, config, lambda *_: None)

    return make


@pytest.fixture(scope="session")
def given_outputs() -> Callable[..., tuple[Federation, Outcome]]:
    """``given_outputs(repetition, config, logits)``: calibrated parties whose model says this."""

    def make(
        repetition: Repetition, config: Config, logits: np.ndarray, method: str = "fed"
    ) -> tuple[Federation, Outcome]:
        own, recipe = federation(repetition, config), recipe_of(method)
        carrier = Stacked([own.carried])
        carrier.carry([own.session.prepare()])
        for party in own.parties:
            nodes = np.flatnonzero(repetition.partition.client == party.number)
            party._logits[recipe.models["shared"]] = logits[nodes]
        (found,) = carrier.carry([own.session.calibrate(method)])
        return own, Outcome(recipe, calibrated=found)

    return make


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plan, bool]]:
    """The plan of every program that is trained from now on, and whether it goes on from given
    weights."""
    asked: list[tuple[Plan, bool]] = []
    begin = Program.__init__

    def remember(self: Program, federations: object, plan: Plan, start: object = None, *more: int):
        asked.append((plan, start is not None))
        begin(self, federations, plan, start, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Program, "__init__", remember)
    return asked
