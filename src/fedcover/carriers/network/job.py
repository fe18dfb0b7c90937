"""What a federation is to do: the coordinator's settings, of which the sites get their part."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedcover.config import Config, NetworkSettings, recipe_of
from fedcover.errors import UsageError
from fedcover.graphs.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Job(NetworkSettings):
    """A run's settings, and those of a federation whose sites may fail."""

    config: Config = field(
        default_factory=lambda: Config(methods=("gen",), seeds=1, partition="given")
    )

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


def terms_text(job: Job) -> str:
    """What the sites must know of a job."""
    told = {"config": asdict(job.config), "missing": job.missing, "group": job.group}
    return json.dumps(told, default=str)


def terms_from_text(text: str) -> tuple[Config, dict[str, Any]]:
    """The settings of :func:`terms_text`, and how a site reads its folder."""
    told = json.loads(text)
    return Config(**told["config"]), {key: told[key] for key in ("missing", "group")}
