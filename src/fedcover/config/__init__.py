"""One schema of all settings: types, ranges, defaults, help, and what is said of a wrong value."""

from fedcover.config.files import configured as configured
from fedcover.config.files import read_settings as read_settings
from fedcover.config.files import to_toml as to_toml
from fedcover.config.recipes import BEST as BEST
from fedcover.config.recipes import BEST_LINKED as BEST_LINKED
from fedcover.config.recipes import METHODS as METHODS
from fedcover.config.recipes import Recipe as Recipe
from fedcover.config.recipes import recipe_of as recipe_of
from fedcover.config.settings import Config as Config
from fedcover.config.settings import GenSettings as GenSettings
from fedcover.config.settings import NeighbourSettings as NeighbourSettings
from fedcover.config.settings import NeighGenSettings as NeighGenSettings
from fedcover.config.settings import NetworkSettings as NetworkSettings
from fedcover.config.settings import PersonalSettings as PersonalSettings
from fedcover.config.settings import Privacy as Privacy
from fedcover.config.settings import VaeSettings as VaeSettings
