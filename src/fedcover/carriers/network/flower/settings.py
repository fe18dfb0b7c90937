"""A job from Flower's ``--run-config``; an empty value means: as the preset has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcover.config import Config
from fedcover.errors import UsageError
from fedcover.graphs.schema import read_schema
from fedcover.parties.coordinate import Assignment
from fedcover.parties.job import Job

LISTS = {"methods": str, "scores": str, "quantiles": str, "alphas": float}
GRIDS = {"prototypes": int, "shares": float}  # of Gen
OF_GEN = ("link-rounds", "screening")
PLAIN = ("model", "rounds", "patience", "local-epochs", "batch-size", "hidden", "lr", "dropout")
FEDERATION = ("sites", "least", "timeout", "join", "average")


def assignment_from(run_config: Mapping[str, Any]) -> Assignment:
    """The job that these settings describe; a wrong one is named."""
    given = {key: value for key, value in run_config.items() if value != ""}
    changes: dict[str, Any] = {"seeds": 1, "partition": "given"}
    for key in ("schema", "out"):
        if key not in given:
            raise UsageError(f"--run-config has no {key}.")
    schema = read_schema(Path(str(given["schema"])))
    for key, kind in LISTS.items():
        if key in given:
            changes[key] = _several(key, given[key], kind)
    for key, kind in GRIDS.items():
        if key in given:
            changes[key] = _several(key, given[key], kind)
    for key in (*PLAIN, *OF_GEN):
        if key in given:
            changes[key.replace("-", "_")] = given[key]
    changes["first_seed"] = int(given.get("seed", 0))
    changes["unit_features"] = bool(given.get("unit-features", schema.binary))
    preset = str(given.get("preset", "default"))
    if "methods" not in changes:
        changes["methods"] = ("gen",)
    config = Config.preset(preset, **changes)
    federation = {key: given[key] for key in FEDERATION if key in given}
    return Assignment(Job(config=config, **federation), schema, Path(str(given["out"])))


def _several(key: str, value: Any, kind: type) -> tuple[Any, ...]:
    try:
        return tuple(kind(word.strip()) for word in str(value).split(","))
    except ValueError:
        raise UsageError(f"{key} is {value!r}; give values separated by commas.") from None
