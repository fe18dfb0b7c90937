"""What a terminal shows: progress on stderr, tables on stdout; one file for each kind."""

from __future__ import annotations

import sys

from rich.console import Console

from fedcover.display.answers import federation, ledger, paper_table, predicted, tuning
from fedcover.display.graphs import cuts, datasets, graph
from fedcover.display.inspection import inspection
from fedcover.display.progress import grid_progress, progress
from fedcover.display.run import summary

__all__ = [
    "console",
    "cuts",
    "datasets",
    "federation",
    "graph",
    "grid_progress",
    "inspection",
    "ledger",
    "paper_table",
    "predicted",
    "progress",
    "summary",
    "tuning",
]


def console() -> Console:
    """Standard output; a pipe is given room for the widest table."""
    return Console() if sys.stdout.isatty() else Console(width=120)
