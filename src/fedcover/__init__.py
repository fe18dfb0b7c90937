"""Federated graph neural networks with prediction sets that keep their coverage promise.

The names below are loaded on first use, so that ``import fedcover.conformal`` needs numpy alone.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "load": "fedcover.graphs.datasets",
    "from_networkx": "fedcover.graphs.attributes",
    "from_scipy": "fedcover.graphs.convert",
    "partition": "fedcover.graphs.partition",
    "Config": "fedcover.experiment.config",
    "run": "fedcover.experiment.run",
    "load_predictor": "fedcover.predictor.files",
    "DataError": "fedcover.errors",
    "FedcoverError": "fedcover.errors",
    "UsageError": "fedcover.errors",
}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedcover' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
