"""The installed ServerApp."""

from fedcover.carriers.network.flower.server_app import app

__all__ = ["app"]
