"""What a federation is to do: the coordinator's settings, of which the sites get their part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedcover.config import Config, NetworkSettings, Recipe, recipe_of
from fedcover.conformal.scores import SCORES
from fedcover.errors import UsageError
from fedcover.federation import Plan
from fedcover.graphs.schema import Schema
from fedcover.run.training import plan_of

METHODS = ("loc", "fed", "gen")


@dataclass(frozen=True, kw_only=True)
class Job(NetworkSettings):
    """A run's settings, and those of a federation whose sites may fail."""

    config: Config = field(
        default_factory=lambda: Config(methods=("gen",), seeds=1, partition="given")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for method in self.config.methods:
            recipe = recipe_of(method)
            if recipe.base not in METHODS or recipe.personal:
                raise UsageError(
                    f"methods has {method!r}; a federation over a network knows "
                    f"{', '.join(METHODS)}, each with +prox and +prior."
                )
        for score in self.config.scores:
            if score not in SCORES:
                raise UsageError(
                    f"scores has {score!r}; a federation over a network knows {', '.join(SCORES)}."
                )
        if self.config.seeds != 1:
            raise UsageError(f"seeds is {self.config.seeds}; a federation runs one, first_seed.")
        if self.config.privacy is not None:
            raise UsageError(
                f"{self.config.privacy.asked} is asked for; over a network the coordinator knows "
                "the seed of the noise, which would protect nobody from it."
            )
        if self.config.standardise:
            raise UsageError("standardise is True; a federation over a network leaves numbers be.")
        if "mixture" in self.config.quantiles:
            raise UsageError("quantiles has 'mixture', which a federation over a network lacks.")
        if self.config.calibrate != "pooled":
            raise UsageError(
                f"calibrate is {self.config.calibrate!r}; a federation over a network knows pooled."
            )

    @property
    def seed(self) -> int:
        """Of everything random."""
        return self.config.first_seed

    @property
    def cases(self) -> list[tuple[str, str, float]]:
        """Every score, quantile rule and level whose sets are asked for, in a fixed order."""
        config = self.config
        return [(s, q, a) for s in config.scores for q in config.quantiles for a in config.alphas]


def plan(config: Config, schema: Schema, recipe: Recipe) -> Plan:
    """How a recipe's model is trained."""
    return plan_of(config, len(schema.labels), recipe)


def settings_text(config: Config) -> str:
    """The settings as they travel to the sites."""
    return json.dumps(asdict(config), default=str)


def settings_from_text(text: str) -> Config:
    """What :func:`settings_text` spells."""
    given: Mapping[str, Any] = json.loads(text)
    return Config(**given)
