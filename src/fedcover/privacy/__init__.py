"""Differential privacy of the prototypes (docs/privacy.md)."""

from fedcover.privacy.accounting import Spending, spending

__all__ = ["Spending", "spending"]
