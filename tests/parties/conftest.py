"""Three small parties: eight features, three labels, twenty to forty nodes each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedcover.experiment import Config
from fedcover.graphs.schema import Schema, read_schema
from fedcover.graphs.sites import SCHEMA_FILE, common_schema, site_folders
from fedcover.neighbors.settings import GenSettings
from fedcover.parties.coordinate import Assignment
from fedcover.parties.drive import Driver, Transport
from fedcover.parties.job import Job
from fedcover.parties.loopback import Loopback
from fedcover.parties.member import Member

NAMES = ("ada", "bob", "cleo")
FEATURES, LABELS = 8, ("blue", "green", "red")


def write_site(folder: Path, nodes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(3), rng.integers(0, 3, nodes - 3)])
    x = (rng.random((nodes, FEATURES)) < 0.15).astype(float)
    x[np.arange(nodes), 2 * y] = 1
    x[:, 6:] = rng.normal(size=(nodes, 2)).round(4)  # so that no two rows are the same
    folder.mkdir(parents=True)
    columns: dict[str, Any] = {
        "id": [f"{folder.name}-{i}" for i in range(nodes)],
        "label": [LABELS[label] for label in y],
        "split": rng.permutation(
            np.resize(["train", "train", "valid", "calib", "calib", "test", "test"], nodes)
        ).tolist(),
    }
    frame = pl.DataFrame(columns | {f"f{j}": x[:, j] for j in range(FEATURES)})
    frame.write_csv(folder / "nodes.csv")
    ends = rng.integers(0, nodes, (2, 3 * nodes))
    same = y[ends[0]] == y[ends[1]]
    ids = np.array(columns["id"])
    pl.DataFrame({"source": ids[ends[0][same]], "target": ids[ends[1][same]]}).write_csv(
        folder / "edges.csv"
    )


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    folder = tmp_path / "sites"
    for seed, (name, nodes) in enumerate(zip(NAMES, (28, 40, 34), strict=True)):
        write_site(folder / name, nodes, seed)
    schema = common_schema(site_folders(folder))
    (folder / SCHEMA_FILE).write_text(schema.to_json())
    return folder


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
        "alphas": (0.1, 0.3),
        "resplits": 2,
        "gen": GenSettings(prototypes=(2, 3), shares=(0.2, 0.5), link_rounds=3, screening=2),
        **changes,
    }


def make_job(**changes: Any) -> Job:
    federation = {
        key: changes.pop(key)
        for key in ("sites", "least", "timeout", "join", "average")
        if key in changes
    }
    return Job(config=Config(**settings(**changes)), **({"sites": 3} | federation))


def members(sites: Path) -> list[Member]:
    return [Member(folder) for folder in site_folders(sites)]


@pytest.fixture
def assignment(sites: Path, schema: Schema, tmp_path: Path) -> Callable[..., Assignment]:
    def make(**changes: Any) -> Assignment:
        return Assignment(make_job(**changes), schema, tmp_path / "out")

    return make


@pytest.fixture
def driver(sites: Path, schema: Schema) -> Callable[..., Driver]:
    def make(transport: Transport | None = None, **changes: Any) -> Driver:
        return Driver(make_job(**changes), schema, transport or Loopback(members(sites)))

    return make
