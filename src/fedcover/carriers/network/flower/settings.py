"""A job from Flower's ``--run-config``; an empty value means: as the preset has it.

Its keys are the names of the settings with dashes: those of a run but for what only a simulation
has, and those of a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcover.carriers.network.coordinate import Assignment
from fedcover.carriers.network.job import Job
from fedcover.config import Config, NetworkSettings
from fedcover.config.schema import Setting, declared, options, unknown
from fedcover.errors import UsageError
from fedcover.graphs.schema import read_schema

OWN = ("schema", "out", "preset")
DEFAULTS = {"methods": "gen", "seeds": 1}


def of_run() -> dict[str, Setting]:
    """The settings of a run that mean something over a network, by their keys."""
    found = {name: one.setting for name, one in options(Config).items()}
    return {_key(name): one for name, one in found.items() if not one.simulated}


def of_network() -> dict[str, Setting]:
    """The network's own, by their keys."""
    return {_key(name): one for name, one in declared(NetworkSettings).items()}


def assignment_from(run_config: Mapping[str, Any]) -> Assignment:
    """The job that these settings describe; a wrong one is named."""
    given = DEFAULTS | {key: value for key, value in run_config.items() if value != ""}
    for key in ("schema", "out"):
        if key not in given:
            raise UsageError(f"--run-config has no {key}.")
    run, network = of_run(), of_network()
    for key in given:
        if key not in (*OWN, *run, *network):
            raise unknown(key, [*OWN, *run, *network])

    def read(known: Mapping[str, Setting]) -> dict[str, Any]:
        return {_name(k): one.read(given[k]) for k, one in known.items() if k in given}

    preset = str(given.get("preset", "default"))
    config = Config.preset(preset, partition="given", **read(run))
    job = Job(config=config, **read(network))
    return Assignment(job, read_schema(Path(str(given["schema"]))), Path(str(given["out"])))


def _key(name: str) -> str:
    return name.replace("_", "-")


def _name(key: str) -> str:
    return key.replace("-", "_")
