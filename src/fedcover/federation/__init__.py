"""Training over clients: the engine's interface, two engines, and FedAvg."""

from fedcover.federation.inprocess import InProcess
from fedcover.federation.reference import Reference
from fedcover.training.plan import Engine, Federation, PartyGraph, Plan, Prior, Trained

__all__ = [
    "Engine",
    "Federation",
    "InProcess",
    "PartyGraph",
    "Plan",
    "Prior",
    "Reference",
    "Trained",
]
