"""A job from Flower's ``--run-config``: the schema's settings, with dashes in their names.

Flower wants every key to stand in the app's ``pyproject.toml``; an empty value means: as the preset
has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcover.carriers.network.coordinate import Assignment
from fedcover.carriers.network.job import Job
from fedcover.config import Config
from fedcover.config.schema import options, unknown
from fedcover.config.settings import NetworkSettings, network_settings
from fedcover.errors import UsageError
from fedcover.graphs.schema import read_schema

OWN = {
    "schema": "Path of the agreed schema.json on the coordinator's machine.",
    "out": "The run folder that the coordinator writes.",
    "preset": "default, plain or paper.",
}
DEFAULTS: dict[str, Any] = {"methods": "gen", "seeds": 1}
"""What a job is unless told: a simulation's default has methods that no network has."""


def assignment_from(run_config: Mapping[str, Any]) -> Assignment:
    """The job that these settings describe; a wrong one is named."""
    for key in ("schema", "out"):
        if not run_config.get(key):
            raise UsageError(f"--run-config has no {key}.")
    schema = read_schema(Path(str(run_config["schema"])))
    return Assignment(job_from(run_config), schema, Path(str(run_config["out"])))


def job_from(run_config: Mapping[str, Any]) -> Job:
    """The same without its files."""
    known = {name.replace("_", "-"): (name, one) for name, one in network_settings().items()}
    given = {}
    for key, value in (DEFAULTS | dict(run_config)).items():
        if key not in known and key not in OWN:
            raise unknown(key, [*known, *OWN])
        if key in known and value != "":
            name, one = known[key]
            given[name] = one.read(value)
    network = {name: given.pop(name) for name in options(NetworkSettings) if name in given}
    preset = run_config.get("preset") or "default"
    return Job(config=Config.preset(preset, partition="given", **given), **network)
