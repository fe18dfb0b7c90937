"""A model of one's own beside the shared one: the mixture of several models."""
