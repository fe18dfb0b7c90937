"""From a graph and a configuration to tables on disk."""

from fedcover.simulation.run import Run, run

__all__ = ["Run", "run"]
