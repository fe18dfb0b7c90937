"""The installed ClientApp."""

from fedcover.flower.client_app import app

__all__ = ["app"]
