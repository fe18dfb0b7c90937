"""Does generating neighbours raise accuracy? FedSage+ and Gen over plain FedSage, as the paper.

GraphSAGE everywhere; the change in test accuracy in per cent of plain FedSage's, paired over the
seeds, with its 95 % interval, beside the paper's accuracy table. Needs FEDCOVER_DATA.

    python benchmarks/accuracy.py [--out accuracy.csv]
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import polars as pl
from scipy.stats import t as student

import fedcover

PUBLISHED = Path(__file__).parent.parent / "paper" / "published" / "accuracy_change.csv"
GRAPHS = ("cora", "citeseer")
CLIENTS = (3, 5, 10, 20)


def published() -> dict[tuple[str, int, str], float]:
    with PUBLISHED.open() as file:
        return {
            (row["dataset"].lower(), int(row["clients"]), row["method"]): float(
                row["accuracy_change_percent"]
            )
            for row in csv.DictReader(file)
        }


def accuracies(graph: str, clients: int, seeds: int) -> pl.DataFrame:
    """One row a seed, one column a method."""
    config = fedcover.Config.preset(
        "plain",
        clients=clients,
        model="sage",
        methods=("fedsage", "fedsage+", "gen"),
        scores=("lac",),
        alphas=(0.1,),
        resplits=1,
        seeds=seeds,
    )
    results = fedcover.run(fedcover.load(graph), config).results
    return results.pivot(on="method", index=["dataset", "clients", "seed"], values="accuracy")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    paper, tables = published(), []
    print("| graph | K | FedSage | FedSage+ | paper | Gen | paper |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for graph in GRAPHS:
        for clients in CLIENTS:
            table = accuracies(graph, clients, chosen.seeds)
            tables.append(table)
            cells = [graph, str(clients), f"{table['fedsage'].mean():.3f}"]
            for method in ("fedsage+", "gen"):
                change = 100 * (table[method] / table["fedsage"] - 1)
                half = change.std() / len(change) ** 0.5 * student.ppf(0.975, len(change) - 1)
                there = paper.get((graph, clients, method))
                cells += [
                    f"{change.mean():+.2f} % ± {half:.2f}",
                    "–" if there is None else f"{there:+.2f} %",
                ]
            print("| " + " | ".join(cells) + " |", flush=True)
    if chosen.out:
        pl.concat(tables).write_csv(chosen.out)


if __name__ == "__main__":
    main()
