"""Jobs of three small parties, all in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedcover.algorithm.session import Outcome
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.job import Assignment, Job
from fedcover.carriers.network.member import InProcess, Member
from fedcover.carriers.network.messages import Transport
from fedcover.carriers.network.site_job import MIN_FAR_ENDS
from fedcover.config import Config, GenSettings, NetworkSettings
from fedcover.config.schema import declared
from fedcover.graphs.schema import Schema, read_schema
from fedcover.graphs.sites import SCHEMA_FILE, site_folders

NAMES = ("ada", "bob", "cleo")


@pytest.fixture
def sites(tmp_path: Path, toy_sites: Callable[..., Path]) -> Path:
    return toy_sites(tmp_path / "sites", NAMES)


@pytest.fixture
def schema(sites: Path) -> Schema:
    return read_schema(sites / SCHEMA_FILE)


@pytest.fixture
def linked_sites(toy_sites: Callable[..., Path]) -> Callable[..., Path]:
    """As ``toy_sites``, with links."""
    return lambda folder, names: with_links(toy_sites(folder, names))


@pytest.fixture
def linked(sites: Path) -> Path:
    """The same parties, who know edges between them, four a node, and some that one alone lists."""
    return with_links(sites)


def with_links(sites: Path, each: int = 70, alone: int = 4) -> Path:
    """Write ``each`` links between any two parties, and some more that only the first lists."""
    rng, folders = np.random.default_rng(3), site_folders(sites)
    ids = [pl.read_csv(folder / "nodes.csv")["id"].to_list() for folder in folders]
    rows: dict[str, list[tuple[str, str, str]]] = {folder.name: [] for folder in folders}
    for a, one in enumerate(folders):
        for b, other in enumerate(folders[a + 1 :], a + 1):
            for count in range(each + alone):
                left, right = ids[a][rng.integers(len(ids[a]))], ids[b][rng.integers(len(ids[b]))]
                rows[one.name].append((left, other.name, right))
                if count < each:
                    rows[other.name].append((right, one.name, left))
    for folder in folders:
        table = pl.DataFrame(rows[folder.name], schema=("node", "party", "other"), orient="row")
        table.sample(fraction=1.0, shuffle=True, seed=1).write_csv(folder / "links.csv")
    return sites


def with_keys(sites: Path) -> Path:
    """Give most nodes a key: that of a person who has a node at two parties or three, or at one."""
    rng = np.random.default_rng(4)
    for folder in site_folders(sites):
        nodes = pl.read_csv(folder / "nodes.csv")
        keys = [f"person {k}" for k in rng.permutation(50)[: len(nodes)]]
        empty = rng.random(len(nodes)) < 0.1
        persons = [None if none else key for none, key in zip(empty, keys, strict=True)]
        nodes.with_columns(person=pl.Series(persons)).write_csv(folder / "nodes.csv")
    return sites


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "methods": ("fed",),
        "seeds": 1,
        "partition": "given",
        "rounds": 4,
        "hidden": 8,
        "unit_features": False,
        "standardise": False,
        "alphas": (0.1, 0.3),
        "resplits": 2,
        "gen": GenSettings(prototypes=(2, 3), shares=(0.2, 0.5), link_rounds=3, screening=2),
        **changes,
    }


def make_job(**changes: Any) -> Job:
    of_network = [name for name in declared(NetworkSettings) if name in changes]
    federation = {key: changes.pop(key) for key in of_network}
    return Job(config=Config(**settings(**changes)), **({"sites": 3} | federation))


def members(sites: Path, least_far_ends: int = MIN_FAR_ENDS) -> list[Member]:
    return [Member(folder, least_far_ends=least_far_ends) for folder in site_folders(sites)]


def only(outcomes: dict[int, dict[str, Outcome]]) -> dict[str, Outcome]:
    """What came of the methods in a job with one seed."""
    (found,) = outcomes.values()
    return found


@pytest.fixture
def assignment(sites: Path, schema: Schema, tmp_path: Path) -> Callable[..., Assignment]:
    def make(**changes: Any) -> Assignment:
        return Assignment(make_job(**changes), schema, tmp_path / "out")

    return make


@pytest.fixture
def coordinator(sites: Path, schema: Schema) -> Callable[..., Coordinator]:
    def make(transport: Transport | None = None, **changes: Any) -> Coordinator:
        return Coordinator(make_job(**changes), schema, transport or InProcess(members(sites)))

    return make
