"""Is the paper's setting understood? `fed` with `--preset paper` beside the published set sizes.

Prints, for each graph, K and level: the published size, ours by quantile averaging (the paper's
rule) with its coverage, the difference, and ours by the exact rule with its coverage.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import fedcover
from fedcover.experiment.summary import summarise

PUBLISHED = Path(__file__).parent.parent / "paper" / "published" / "set_sizes.csv"
GRAPHS = ("cora", "citeseer")
CLIENTS = (3, 5, 10, 20)


def published() -> dict[tuple[str, int, float], float]:
    with PUBLISHED.open() as file:
        return {
            (row["dataset"].lower(), int(row["clients"]), float(row["confidence"])): float(
                row["set_size"]
            )
            for row in csv.DictReader(file)
            if row["table"] == "main" and row["method"] == "fed"
        }


def main() -> None:
    sizes = published()
    print("| graph | K | level | published | averaging | covers | difference | exact | covers |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    within = cells = 0
    for name in GRAPHS:
        graph = fedcover.load(name)
        for clients in CLIENTS:
            config = fedcover.Config.preset(
                "paper", clients=clients, methods=("fed",), quantiles=("average", "exact")
            )
            finished = fedcover.run(graph, config)
            table = summarise(finished.results, finished.groups, config.resplits)
            for alpha in config.alphas:
                row = {r["quantile"]: r for r in table.iter_rows(named=True) if r["alpha"] == alpha}
                paper = sizes[name, clients, round(1 - alpha, 2)]
                ours, exact = row["average"], row["exact"]
                difference = ours["set_size"] / paper - 1
                cells += 1
                within += abs(difference) <= 0.15
                print(
                    f"| {name} | {clients} | {1 - alpha:.2f} | {paper:.2f} "
                    f"| {ours['set_size']:.2f} ± {ours['set_size_sd']:.2f} "
                    f"| {ours['coverage']:.3f} | {difference:+.0%} "
                    f"| {exact['set_size']:.2f} | {exact['coverage']:.3f} |",
                    flush=True,
                )
    print(f"\n{within} of {cells} cells within 15 % of the published size.", file=sys.stderr)


if __name__ == "__main__":
    main()
