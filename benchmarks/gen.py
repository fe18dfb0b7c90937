"""Gen against Fed, in pairs: four graphs, K = 3, 5, 10, 20, three levels, four scores, five seeds.

Every seed trains both on the same partition and split, so that the difference of set sizes is a
paired one; its 95 % interval is Student's over the seeds. `restored` (the true cut edges given
back) shows what a perfect generator would reach. Prints one Markdown table a score, counts the
cells, and writes the rows to a CSV file. Needs FEDCOVER_DATA; 40 minutes for all on two cores.

    python benchmarks/gen.py --out gen.csv [--graphs cora,citeseer] [--clients 3,10]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import polars as pl
from scipy.stats import t as student

import fedcover

GRAPHS = ("cora", "citeseer", "pubmed", "computers")
CLIENTS = (3, 5, 10, 20)
SCORES = ("aps-det", "aps", "raps", "lac")
METHODS = ("fed", "gen", "restored")
CELL = ["dataset", "clients", "score", "quantile", "alpha"]


def measure(graph: str, clients: int, preset: str, seeds: int) -> pl.DataFrame:
    """The results of one graph and K."""
    config = fedcover.Config.preset(
        preset, clients=clients, methods=METHODS, scores=SCORES, quantiles=("exact", "average"),
        seeds=seeds,
    )  # fmt: skip
    began = time.perf_counter()
    finished = fedcover.run(fedcover.load(graph), config)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    chosen = finished.info["chosen_on_validation"]["gen"]
    pairs = zip(chosen["prototypes"], chosen["share"], strict=True)
    cells = ", ".join(f"M={m} p={p}" for m, p in pairs)
    seconds = time.perf_counter() - began
    print(
        f"{graph}, K = {clients}: {seconds:.0f} s, peak {peak:.1f} GiB; {cells}",
        file=sys.stderr,
        flush=True,
    )
    return finished.results


def paired(results: pl.DataFrame) -> pl.DataFrame:
    """One row a cell: mean sizes, the paired difference and its interval, coverage, the share."""
    sizes = results.pivot(
        on="method", index=[*CELL, "seed"], values=["set_size", "coverage", "accuracy"]
    )
    difference = pl.col("set_size_gen") - pl.col("set_size_fed")
    distance = pl.col("set_size_fed") - pl.col("set_size_restored")
    rows = (
        sizes.with_columns(difference.alias("difference"), distance.alias("distance"))
        .group_by(CELL, maintain_order=True)
        .agg(
            pl.col("^(set_size|coverage|accuracy)_.*$").mean(),
            pl.col("difference").mean(),
            pl.col("difference").std().alias("sd"),
            pl.col("distance").mean(),
            (pl.col("distance").std() / pl.len().sqrt()).alias("distance_se"),
            pl.len().alias("seeds"),
        )
    )
    half = [
        sd / seeds**0.5 * student.ppf(0.975, seeds - 1)
        for sd, seeds in rows.select("sd", "seeds").iter_rows()
    ]
    is_one = pl.col("distance") > 2 * pl.col("distance_se")
    return rows.with_columns(
        pl.Series("half_width", half),
        pl.when(is_one).then(-pl.col("difference") / pl.col("distance")).alias("closed"),
    )


def table(rows: pl.DataFrame) -> str:
    """Markdown: one line a graph and K, one column group a level."""
    alphas = rows["alpha"].unique().sort().to_list()
    head = "| graph | K |" + "".join(
        f" {1 - a:.2f}: Fed | covers | Gen | covers | Gen − Fed | closed |" for a in alphas
    )
    lines = [head, "|---|---|" + "---|" * 6 * len(alphas)]
    for (graph, clients), block in rows.group_by("dataset", "clients", maintain_order=True):
        cells = [_cells(block.row(by_predicate=pl.col("alpha") == a, named=True)) for a in alphas]
        lines.append(f"| {graph} | {clients} |" + "".join(cells))
    return "\n".join(lines)


def _cells(row: dict[str, float]) -> str:
    closed = "–" if row["closed"] is None else f"{row['closed']:.0%}"
    sure = "**" if abs(row["difference"]) > row["half_width"] else ""
    return (
        f" {row['set_size_fed']:.2f} | {row['coverage_fed']:.3f} |"
        f" {row['set_size_gen']:.2f} | {row['coverage_gen']:.3f} |"
        f" {sure}{row['difference']:+.3f}{sure} ± {row['half_width']:.3f} | {closed} |"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--graphs", default=",".join(GRAPHS))
    options.add_argument("--clients", default=",".join(map(str, CLIENTS)))
    options.add_argument("--preset", default="plain")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--out", type=Path, required=True)
    chosen = options.parse_args()
    parts: list[pl.DataFrame] = []
    for graph in chosen.graphs.split(","):
        for clients in map(int, chosen.clients.split(",")):
            parts.append(measure(graph, clients, chosen.preset, chosen.seeds))
            pl.concat(parts).write_csv(chosen.out)
    rows = paired(pl.concat(parts))
    for (score, quantile), block in rows.group_by("score", "quantile", maintain_order=True):
        print(f"\n### {score}, {quantile}\n\n{table(block)}")
        better = (block["difference"] <= 0).sum()
        surely = (block["difference"] + block["half_width"] < 0).sum()
        worse = (block["difference"] - block["half_width"] > 0).sum()
        print(
            f"\nGen ≤ Fed in {better} of {len(block)} cells; the interval lies below zero in "
            f"{surely} and above it in {worse}."
        )


if __name__ == "__main__":
    main()
