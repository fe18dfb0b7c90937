"""What a terminal shows: progress on stderr, tables on stdout; one file for each kind."""

from fedcover.display.answers import federation, ledger, paper_table, predicted, tuning
from fedcover.display.graphs import cuts, datasets, graph, inspection
from fedcover.display.run import summary
from fedcover.display.terminal import console, grid_progress, notes, notes_held_back, progress

__all__ = [
    "console",
    "cuts",
    "datasets",
    "federation",
    "graph",
    "grid_progress",
    "inspection",
    "ledger",
    "notes",
    "notes_held_back",
    "paper_table",
    "predicted",
    "progress",
    "summary",
    "tuning",
]
