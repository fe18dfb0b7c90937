"""Is the paper's setting understood? What it leaves open, set otherwise, for `fed` on Cora.

Prints, for each variant and K, the differences to the published set sizes at the three levels, and
our coverage. The setting itself beside the published numbers: `fedcover paper main --preset paper`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

import fedcover
from fedcover.paper.published import main_sizes
from fedcover.report.summary import summarise

CLIENTS = (3, 5, 10, 20)
VARIANTS: dict[str, dict[str, Any]] = {
    "as the preset": {},
    "one local epoch": {"local_epochs": 1},
    "full batches": {"batch_size": 0},
    "no dropout": {"dropout": 0.0},
    "16 hidden units": {"hidden": 16},
    "256 hidden units": {"hidden": 256},
    "GraphSAGE": {"model": "sage"},
    "no temperature": {"temperature": "none"},
    "at most 10 rounds": {"rounds": 10},
}


def measure(graph: Any, clients: int, **changes: Any) -> pl.DataFrame:
    """Set size and coverage of `fed` by quantile rule and level."""
    config = fedcover.Config.preset("paper", clients=clients, methods=("fed",), **changes)
    finished = fedcover.run(graph, config)
    return summarise(finished.results, finished.groups, config.resplits)


def variants() -> None:
    sizes, graph = main_sizes("fed"), fedcover.load("cora")
    print("| | " + " | ".join(f"K = {k}" for k in CLIENTS) + " |")
    print("|---|" + "---|" * len(CLIENTS))
    for name, changes in VARIANTS.items():
        columns = []
        for clients in CLIENTS:
            table = measure(graph, clients, seeds=2, resplits=20, **changes)
            paper = [sizes["cora", clients, round(1 - alpha, 2)] for alpha in table["alpha"]]
            moves = [
                f"{ours / p - 1:+.0%}" for ours, p in zip(table["set_size"], paper, strict=True)
            ]
            covers = [f"{c:.2f}"[1:] for c in table["coverage"]]
            columns.append(f"{' '.join(moves)} ({' '.join(covers)})")
        print(f"| {name} | " + " | ".join(columns) + " |", flush=True)


if __name__ == "__main__":
    variants()
