"""Restore the neighbours that the cut between clients hides."""
