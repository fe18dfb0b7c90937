"""Training over clients: the engine's interface, two engines, and FedAvg."""

from fedcover.federation.engine import Client, Engine, Federation, Plan, Prior, Trained
from fedcover.federation.inprocess import InProcess
from fedcover.federation.reference import Reference

__all__ = [
    "Client",
    "Engine",
    "Federation",
    "InProcess",
    "Plan",
    "Prior",
    "Reference",
    "Trained",
]
