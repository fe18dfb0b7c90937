"""The installed ServerApp."""

from fedcover.flower.server_app import app

__all__ = ["app"]
