"""The paper's main table of set sizes, as data."""

from __future__ import annotations

import csv
from pathlib import Path

FILE = Path(__file__).parent.parent / "paper" / "published" / "set_sizes.csv"


def published(method: str) -> dict[tuple[str, int, float], float]:
    """The published sizes of a method by graph, number of clients and level."""
    with FILE.open() as file:
        return {
            (row["dataset"].lower(), int(row["clients"]), float(row["confidence"])): float(
                row["set_size"]
            )
            for row in csv.DictReader(file)
            if row["table"] == "main" and row["method"] == method
        }
