"""Choosing a run's settings on validation nodes, by successive halving in a time budget."""

from fedcover.tuning.search import Tuning, tune

__all__ = ["Tuning", "tune"]
