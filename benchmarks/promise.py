"""The promise, cell by cell: four graphs x K x levels, the default recipe, LAC.

For the rule `exact`: the mean coverage over re-splits against the theorem's band, and that of the
calibrated splits against its 95 % interval. Its set size beside that of `theorem1`, and beside that
of `central`, who calibrates as one party and chooses its weight decay on validation nodes. The
graphs other than Cora need FEDCOVER_DATA.

    python benchmarks/promise.py [--graphs cora,citeseer] [--clients 3,10] [--seeds 5]
        [--first-seed 0] [--out FILE]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

import fedcover
from fedcover.config.recipes import BEST
from fedcover.report.summary import STANDARD_ERRORS, summarise

GRAPHS = ("cora", "citeseer", "pubmed", "computers")
CLIENTS = (3, 5, 10, 20)
COLUMNS = (
    "graph", "K", "level", "labels", "covers", "error", "in band", "split", "split interval",
    "in interval", "theorem1", "of it", "central", "central covers", "ratio",
)  # fmt: skip


def measure(graph: str, clients: int, seeds: int, first: int = 0) -> list[dict[str, object]]:
    """One row for each level."""
    config = fedcover.Config(
        clients=clients, methods=(BEST, "central"), scores=("lac",),
        quantiles=("exact", "theorem1"), seeds=seeds, first_seed=first,
    )  # fmt: skip
    run = fedcover.run(fedcover.load(graph), config)
    cells = summarise(run.results, run.groups, config.resplits, run.info)
    rows = []
    for alpha in config.alphas:
        ours, theorem1, central = (
            cells.row(by_predicate=(pl.col("alpha") == alpha) & (pl.col("method") == method)
                      & (pl.col("quantile") == rule), named=True)
            for method, rule in ((BEST, "exact"), (BEST, "theorem1"), ("central", "exact"))
        )  # fmt: skip
        slack = STANDARD_ERRORS * ours["coverage_se"]
        in_band = ours["low"] - slack <= ours["coverage"] <= ours["high"] + slack
        in_interval = ours["split_low"] <= ours["coverage_split"] <= ours["split_high"]
        values = (
            graph, clients, round(1 - alpha, 6), ours["set_size"], ours["coverage"],
            ours["coverage_se"], in_band, ours["coverage_split"],
            f"{ours['split_low']:.3f} to {ours['split_high']:.3f}", in_interval,
            theorem1["set_size"], ours["set_size"] / theorem1["set_size"], central["set_size"],
            central["coverage"], ours["set_size"] / central["set_size"],
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def line(row: dict[str, object]) -> str:
    """A row of the Markdown table."""
    words = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()]
    return f"| {' | '.join(words)} |"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--clients", default=",".join(map(str, CLIENTS)))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a CSV file for the same table")
    args = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    rows = []
    for graph in args.graphs.split(","):
        for clients in map(int, args.clients.split(",")):
            found = measure(graph, clients, args.seeds, args.first_seed)
            print(*map(line, found), sep="\n", flush=True)
            rows += found
    table = pl.DataFrame(rows)
    print(
        f"\n{len(table)} cells: {table['in band'].sum()} in the band by re-splits, "
        f"{table['in interval'].sum()} with the calibrated splits inside their interval, "
        f"{(table['of it'] <= 1).sum()} at most as large as theorem1.\n"
        f"Ratio to central: mean {table['ratio'].mean():.3f}, largest {table['ratio'].max():.3f}."
    )
    if args.out is not None:
        table.write_csv(args.out, float_precision=5)


if __name__ == "__main__":
    main()
