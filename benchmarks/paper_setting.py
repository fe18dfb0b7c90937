"""Is the paper's setting understood? `fed` with `--preset paper` beside the published set sizes.

Prints, for each graph, K and level: the published size, ours by quantile averaging (the paper's
rule) with its coverage, the difference, and ours by the exact rule with its coverage. With
`--variants`: how the differences on Cora move when what the paper leaves open is set otherwise.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import polars as pl

import fedcover
from fedcover.experiment.summary import summarise
from fedcover.paper.published import main_sizes

GRAPHS = ("cora", "citeseer")
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


def cells() -> None:
    sizes = main_sizes("fed")
    print("| graph | K | level | published | averaging | covers | difference | exact | covers |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    within = []
    for name in GRAPHS:
        graph = fedcover.load(name)
        for clients in CLIENTS:
            table = measure(graph, clients, quantiles=("average", "exact"))
            for (alpha,), rows in table.group_by("alpha", maintain_order=True):
                ours, exact = (
                    rows.row(by_predicate=pl.col("quantile") == rule, named=True)
                    for rule in ("average", "exact")
                )
                paper = sizes[name, clients, round(1 - float(str(alpha)), 2)]
                difference = ours["set_size"] / paper - 1
                within.append(abs(difference) <= 0.15)
                print(
                    f"| {name} | {clients} | {1 - float(str(alpha)):.2f} | {paper:.2f} "
                    f"| {ours['set_size']:.2f} ± {ours['set_size_sd']:.2f} "
                    f"| {ours['coverage']:.3f} | {difference:+.0%} "
                    f"| {exact['set_size']:.2f} | {exact['coverage']:.3f} |",
                    flush=True,
                )
    print(f"{sum(within)} of {len(within)} cells within 15 %.", file=sys.stderr)


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", action="store_true")
    variants() if parser.parse_args().variants else cells()
