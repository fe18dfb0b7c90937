"""A model of one's own beside the shared one: settings, and the mixture of several models."""

from fedcover.personal.settings import PersonalSettings

__all__ = ["PersonalSettings"]
