"""What ``flwr run`` sends around: the names of two apps that are installed with fedcover."""

from fedcover.carriers.network.flower.apps import client, server

__all__ = ["client", "server"]
