"""One schema of all settings: types, ranges, defaults, help, and what is said of a wrong value."""

from fedcover.config.files import configured, read_settings, to_toml
from fedcover.config.recipes import BEST, METHODS, Recipe, recipe_of
from fedcover.config.settings import (
    Config,
    GenSettings,
    NeighGenSettings,
    NetworkSettings,
    PersonalSettings,
    Privacy,
    VaeSettings,
)

__all__ = [
    "BEST",
    "METHODS",
    "Config",
    "GenSettings",
    "NeighGenSettings",
    "NetworkSettings",
    "PersonalSettings",
    "Privacy",
    "Recipe",
    "VaeSettings",
    "configured",
    "read_settings",
    "recipe_of",
    "to_toml",
]
