"""Differential privacy of the prototypes (design, section 6, rule 3)."""

from fedcover.privacy.accounting import Privacy, Spending

__all__ = ["Privacy", "Spending"]
