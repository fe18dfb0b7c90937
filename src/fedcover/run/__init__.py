"""From a graph and a configuration to tables on disk."""

from fedcover.run.run import Run, run

__all__ = ["Run", "run"]
