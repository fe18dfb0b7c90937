"""From a graph and a configuration to tables on disk."""

from fedcover.experiment.config import Config
from fedcover.experiment.run import Run, run

__all__ = ["Config", "Run", "run"]
