"""What a federation is to do: the coordinator's settings, of which the sites get their part.

A job comes from Flower's ``--run-config``: the schema's settings, with dashes in their names.
Flower wants every key to stand in the app's ``pyproject.toml``; an empty value means: as the preset
has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcover.config import Config, NetworkSettings, recipe_of
from fedcover.config.schema import options, unknown
from fedcover.config.settings import network_settings
from fedcover.errors import UsageError
from fedcover.graphs.schema import Schema, read_schema

OWN = {
    "schema": "Path of the agreed schema.json on the coordinator's machine.",
    "out": "The run folder that the coordinator writes.",
    "preset": "default, plain or paper.",
}
DEFAULTS: dict[str, Any] = {"methods": "gen", "seeds": 1}
"""What a job is unless told: a simulation's default has methods that no network has."""


@dataclass(frozen=True, kw_only=True)
class Job(NetworkSettings):
    """A run's settings, and those of a federation whose sites may fail."""

    config: Config = field(default_factory=lambda: Config(partition="given", **DEFAULTS))

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.config
        for method in config.methods:
            if not recipe_of(method).method.federated:
                raise UsageError(
                    f"methods has {method!r}, which only a simulation has: no site knows the "
                    "others' edges."
                )
        if config.partition != "given":
            raise UsageError(
                f"partition is {config.partition!r}; over a network every site has its own graph, "
                "which is the partition 'given'."
            )
        if config.mixture is not None and len(config.mixture) != self.sites:
            raise UsageError(
                f"mixture has length {len(config.mixture)}; it must hold one number for each of "
                f"the {self.sites} sites, in the order of their names."
            )
        if (config.calibrate == "group") != (self.group is not None):
            raise UsageError("calibrate 'group' and group, the column that names it, go together.")

    def settled(self, schema: Schema) -> Job:
        """With what the settings leave to the data: nobody sees them all, so the schema decides."""
        config = self.config
        unit, standard = config.unit_features, config.standardise
        unit = not standard and schema.binary if unit is None else unit
        standard = not unit and not schema.binary if standard is None else standard
        return replace(self, config=replace(config, unit_features=unit, standardise=standard))


@dataclass(frozen=True)
class Assignment:
    """What is to be done, and where the run folder goes."""

    job: Job
    schema: Schema
    out: Path

    @property
    def beside(self) -> Path:
        """What a coordinator that is started again needs; gone when the run folder stands."""
        return job_folder(self.out)


def job_folder(out: Path) -> Path:
    """Where a job keeps what it needs to go on, beside its run folder."""
    return out.parent / f"{out.name}.job"


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


def terms_text(job: Job) -> str:
    """What the sites must know of a job."""
    told = {"config": asdict(job.config), "missing": job.missing, "group": job.group}
    return json.dumps(told, default=str)


def terms_from_text(text: str) -> tuple[Config, dict[str, Any]]:
    """The settings of :func:`terms_text`, and how a site reads its folder."""
    told = json.loads(text)
    return Config(**told["config"]), {key: told[key] for key in ("missing", "group")}
