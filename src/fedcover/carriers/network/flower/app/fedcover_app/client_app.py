"""The installed ClientApp."""

from fedcover.carriers.network.flower.client_app import app

__all__ = ["app"]
