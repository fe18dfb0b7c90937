"""Jobs of three small parties, all in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedcover.algorithm.session import Outcome
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.job import Assignment, Job
from fedcover.carriers.network.member import InProcess, Member
from fedcover.carriers.network.messages import Transport
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


def members(sites: Path) -> list[Member]:
    return [Member(folder) for folder in site_folders(sites)]


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
