"""Federated graph neural networks with prediction sets that keep their coverage promise.

The names below are loaded on first use, so that ``import fedcover.conformal`` needs numpy alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedcover.errors import DataError, FedcoverError, UsageError

if TYPE_CHECKING:  # type checkers do not follow __getattr__
    from fedcover.config import Config as Config
    from fedcover.graphs.convert import from_networkx as from_networkx
    from fedcover.graphs.convert import from_scipy as from_scipy
    from fedcover.graphs.datasets import load as load
    from fedcover.graphs.partition import partition as partition
    from fedcover.predictor.loading import load_predictor as load_predictor
    from fedcover.simulation.run import run as run

__version__ = "0.1.0"

_HOME = {
    "load": "fedcover.graphs.datasets",
    "from_networkx": "fedcover.graphs.convert",
    "from_scipy": "fedcover.graphs.convert",
    "partition": "fedcover.graphs.partition",
    "Config": "fedcover.config",
    "run": "fedcover.simulation.run",
    "load_predictor": "fedcover.predictor.loading",
}
__all__ = [*_HOME, "DataError", "FedcoverError", "UsageError", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedcover' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
