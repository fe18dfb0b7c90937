"""A simulation: all parties of all seeds in this process, their training as one program."""

from fedcover.carriers.stacked.carrier import Stacked

__all__ = ["Stacked"]
