"""From the grid's rows to a target's table, ours beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from fedcover.paper.definition import Definition
from fedcover.paper.tables import Table
from fedcover.paper.views.cells import cells_table
from fedcover.paper.views.change import change_table
from fedcover.paper.views.graphs import cuts_table, statistics_table
from fedcover.paper.views.sent import bytes_table

TRAINED: dict[str, Callable[[Definition, str, pl.DataFrame], Table]] = {
    "cells": cells_table,
    "change": change_table,
    "bytes": bytes_table,
}
UNTRAINED: dict[str, Callable[[Definition, str | Path | None], Table]] = {
    "statistics": statistics_table,
    "cuts": cuts_table,
}
