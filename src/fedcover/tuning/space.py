"""What there is to choose from, and the draw of candidates from it."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcover.config import BEST, METHODS, Config, recipe_of

AXES: dict[str, tuple[Any, ...]] = {
    "model": ("gcn", "sage"),
    "hidden": (32, 64, 128, 256),
    "lr": (0.003, 0.01, 0.03, 0.1),
    "dropout": (0.2, 0.5, 0.7),
    "local_epochs": (1, 3, 5),
}
"""Values by setting. Methods, and Gen's M and p, come from the configuration itself; the score is
chosen after the model, and the rounds are what candidates are compared by."""
GRID = "prototypes", "share"  # Gen's M and p


@dataclass(frozen=True)
class Candidate:
    """One point of the space."""

    settings: dict[str, Any]  # by the names of :func:`axes_of`, those that make a difference

    def of(self, config: Config) -> Config:
        """The configuration with these settings, and one method."""
        changes = {key: value for key, value in self.settings.items() if key in AXES}
        if "share" in self.settings:
            prototypes, share = self.settings["prototypes"], self.settings["share"]
            changes["gen"] = replace(config.gen, prototypes=(prototypes,), shares=(share,))
        return replace(config, methods=(self.settings["method"],), **changes)


def usual_methods(config: Config) -> tuple[str, ...]:
    """What to choose from where nobody said it: the preset's recipe, without and with Gen."""
    parts = BEST.removeprefix("fed") if BEST in config.methods else ""
    return f"fed{parts}", f"gen{parts}"


def axes_of(config: Config) -> dict[str, tuple[Any, ...]]:
    """The space for a configuration: its methods but those that no party can have (unless there is
    no other), :data:`AXES`, and where Gen is among the methods its M and p.

    Gen with p = 0 is Fed for every M; whoever wants it compared has Fed among the methods.
    """
    federated = tuple(name for name in config.methods if METHODS[recipe_of(name).base].federated)
    methods = federated or config.methods
    axes = {"method": methods, **AXES}
    if any(recipe_of(name).base == "gen" for name in methods):
        linked = tuple(share for share in config.gen.shares if share)
        axes |= {"prototypes": config.gen.prototypes, "share": linked or config.gen.shares}
    return axes


def as_given(config: Config) -> Candidate:
    """The configuration's own settings; of the methods the first, and of Gen's grid the middle,
    since one M and p are chosen."""
    axes = axes_of(config)
    held = {axis: values[len(values) // 2] for axis, values in axes.items() if axis in GRID}
    held["method"] = axes["method"][0]
    return _fitting({axis: held[axis] if axis in held else getattr(config, axis) for axis in axes})


def draw(config: Config, count: int, rng: np.random.Generator) -> list[Candidate]:
    """The configuration as given, then distinct points of the space, every value as likely as
    another of its axis; by method in the given order, so that where time is up the last was short.

    Fewer where the space has fewer. Of one method, a longer draw from an equal generator begins
    with the shorter.
    """
    axes = axes_of(config)
    shape = tuple(len(values) for values in axes.values())
    candidates = [as_given(config)]
    for point in rng.permutation(math.prod(shape)):
        if len(candidates) >= count:
            break
        places = zip(axes.items(), np.unravel_index(int(point), shape), strict=True)
        drawn = _fitting({axis: values[int(i)] for (axis, values), i in places})
        if drawn not in candidates:
            candidates.append(drawn)
    return sorted(candidates, key=lambda one: axes["method"].index(one.settings["method"]))


def _fitting(settings: dict[str, Any]) -> Candidate:
    """The candidate without what makes no difference to its method."""
    recipe = recipe_of(settings["method"])
    idle = {"model"} if METHODS[recipe.base].model else set()  # FedSage has one of its own
    if recipe.base != "gen":
        idle |= {"prototypes", "share"}
    return Candidate({axis: value for axis, value in settings.items() if axis not in idle})
