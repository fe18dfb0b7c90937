"""Graph neural networks: their weights, their propagation matrices, and PyG modules of the same."""

from fedcover.models.gnn import Weights, initial_weights, propagation, to_module

__all__ = ["Weights", "initial_weights", "propagation", "to_module"]
