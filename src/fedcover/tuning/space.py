"""What there is to choose from, and the draw of candidates from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcover.experiment.config import Config
from fedcover.experiment.recipes import recipe_of

AXES: dict[str, tuple[Any, ...]] = {
    "model": ("gcn", "sage"),
    "hidden": (32, 64, 128, 256),
    "lr": (0.003, 0.01, 0.03, 0.1),
    "dropout": (0.2, 0.5, 0.7),
    "local_epochs": (1, 3, 5),
}
"""Values by setting. Gen's M and p come from the configuration's own grid; the score is chosen
after the model, and the rounds are what candidates are compared by."""


@dataclass(frozen=True)
class Candidate:
    """One point of the space."""

    settings: dict[str, Any]  # by the names of AXES, and prototypes and share for Gen

    def of(self, config: Config) -> Config:
        """The configuration with these settings."""
        changes = {key: value for key, value in self.settings.items() if key in AXES}
        if "share" in self.settings:
            prototypes, share = self.settings["prototypes"], self.settings["share"]
            changes["gen"] = replace(config.gen, prototypes=(prototypes,), shares=(share,))
        return replace(config, **changes)


def axes_of(config: Config) -> dict[str, tuple[Any, ...]]:
    """The space for a configuration's methods: the axes that make a difference to them."""
    recipes = [recipe_of(name) for name in config.methods]
    axes = dict(AXES)
    if all(recipe.method.model for recipe in recipes):  # FedSage has a model of its own
        del axes["model"]
    if any(recipe.base == "gen" for recipe in recipes):
        axes |= {"prototypes": config.gen.prototypes, "share": config.gen.shares}
    return axes


def as_given(config: Config) -> Candidate:
    """The configuration's own settings; of Gen's grid its middle, since one M and p are chosen."""
    held = {
        "prototypes": config.gen.prototypes[len(config.gen.prototypes) // 2],
        "share": config.gen.shares[len(config.gen.shares) // 2],
    }
    return Candidate(
        {axis: held[axis] if axis in held else getattr(config, axis) for axis in axes_of(config)}
    )


def draw(config: Config, count: int, rng: np.random.Generator) -> list[Candidate]:
    """The configuration as given, then distinct points of the space, each as likely as another.

    Fewer where the space has fewer. A longer draw from an equal generator begins with the shorter.
    """
    axes = axes_of(config)
    shape = tuple(len(values) for values in axes.values())
    first = as_given(config)
    candidates = [first]
    for point in rng.permutation(math.prod(shape)):
        if len(candidates) >= count:
            break
        places = np.unravel_index(int(point), shape)
        chosen = {
            axis: values[int(i)] for (axis, values), i in zip(axes.items(), places, strict=True)
        }
        if chosen != first.settings:
            candidates.append(Candidate(chosen))
    return candidates
