"""What a federation is to do: the coordinator's settings, of which the sites get their part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedcover.conformal.scores import SCORES
from fedcover.errors import UsageError
from fedcover.experiment.config import Config
from fedcover.recipes import Recipe, recipe_of
from fedcover.experiment.training import plan_of
from fedcover.federation import Plan
from fedcover.graphs.schema import Schema
from fedcover.parties.robust import AVERAGES

METHODS = ("loc", "fed", "gen")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run's settings, and those of a federation whose sites may fail.

    A round waits ``timeout`` seconds for the sites, and goes on with those that answered if they
    are ``least`` or more. A job begins when ``sites`` sites are there, and gives up after ``join``
    seconds without them. ``average`` is how the sites' weights become one model's, see
    :mod:`fedcover.parties.robust`.
    """

    config: Config = field(
        default_factory=lambda: Config(methods=("gen",), seeds=1, partition="given")
    )
    sites: int = 2
    least: int = 2
    timeout: float = 120.0
    join: float = 300.0
    average: str = "mean"

    def __post_init__(self) -> None:
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
        if "mixture" in self.config.quantiles:
            raise UsageError("quantiles has 'mixture', which a federation over a network lacks.")
        if self.config.calibrate != "pooled":
            raise UsageError(
                f"calibrate is {self.config.calibrate!r}; a federation over a network knows pooled."
            )
        for name in ("sites", "least"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name} is {value}; it must be a whole number of 1 or more.")
        if self.least > self.sites:
            raise UsageError(
                f"least is {self.least}, but the federation begins with {self.sites} sites."
            )
        for name in ("timeout", "join"):
            if not getattr(self, name) > 0:
                raise UsageError(
                    f"{name} is {getattr(self, name)}; it must be a number of seconds."
                )
        if self.average not in AVERAGES:
            raise UsageError(
                f"average is {self.average!r}; it must be one of {', '.join(AVERAGES)}."
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
