"""Differential privacy of the prototypes (docs/privacy.md)."""

from fedcover.privacy.accounting import Privacy, Spending

__all__ = ["Privacy", "Spending"]
