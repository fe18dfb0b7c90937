"""The three small parties of the network's tests, for the contract over all carriers."""

from .network.conftest import schema, sites

__all__ = ["schema", "sites"]
