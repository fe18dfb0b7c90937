"""The default recipe on all graphs: against the published Gen, against ``central``, part by part.

Four graphs, K = 3, 5, 10, 20, three levels, five paired seeds, the exact quantile. Prints the 48
cells (size, coverage and whether it lies in its band, the published Gen, the ratio to ``central``
with the same score and model, the worst client beside plain ``fed``'s), then what each part buys
with its error, and writes the rows of every seed to a CSV file. Needs FEDCOVER_DATA; about an hour
for all on two cores.

    python benchmarks/sharper.py --out sharper.csv [--graphs cora,citeseer] [--clients 3,10]
    python benchmarks/sharper.py --again sharper.csv          # the tables of finished files
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from math import exp
from pathlib import Path

import polars as pl

import fedcover
from fedcover.config import BEST
from fedcover.paper.comparisons import paired
from fedcover.paper.published import main_sizes
from fedcover.report.summary import summarise

GRAPHS = ("cora", "citeseer", "pubmed", "computers")
CLIENTS = (3, 5, 10, 20)
SCORE = "lac"
PLAIN = "plain fed"  # FedAvg without any part or setting that was chosen here
STEPS = (  # a method, a score, and what it is compared with
    ("fed", "aps-det", None),
    ("fed", "lac", (PLAIN, "lac")),
    ("fed", "aps", ("fed", "aps-det")),
    ("fed", "lac", ("fed", "aps")),
    ("fed+prox", "lac", ("fed", "lac")),
    ("fed+prior", "lac", ("fed", "lac")),
    ("fed+prox+prior", "lac", ("fed+prox", "lac")),
    ("fed+prox+prior+tuned", "lac", ("fed+prox+prior", "lac")),
    (BEST, "lac", ("fed+prox+prior", "lac")),
    (BEST, "dlac", (BEST, "lac")),
    (BEST, "slac", (BEST, "lac")),
    (BEST, "aps", (BEST, "lac")),
    (BEST, "daps", (BEST, "aps")),
    (BEST, "snaps", (BEST, "aps")),
    (BEST, "lac", ("fed", "lac")),
    (BEST, "lac", ("central", "lac")),
    ("central", "lac", ("fed", "lac")),
)
METHODS = tuple(dict.fromkeys(step[0] for step in STEPS))
RUNS: dict[str, tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = {
    "plain": (("plain", ("fed",), (SCORE,)),),
    "cells": (("default", ("fed", BEST, "central"), (SCORE,)),),
    "parts": (  # not every method needs every score
        ("default", METHODS, (SCORE,)),
        ("default", ("fed",), ("aps-det", "aps")),
        ("default", (BEST,), ("dlac", "slac", "aps", "daps", "snaps")),
    ),
}
"""By name: preset, methods and scores of some runs."""
CELL = ["dataset", "clients", "alpha"]


def measure(graph: str, clients: int, seeds: int, runs: Sequence[str]) -> pl.DataFrame:
    """One row a seed, method, score and level, with the cell's verdict on coverage."""
    began = time.perf_counter()
    loaded, parts = fedcover.load(graph), []
    for preset, methods, scores in [run for name in runs for run in RUNS[name]]:
        config = fedcover.Config.preset(
            preset, clients=clients, methods=methods, scores=scores, seeds=seeds
        )
        finished = fedcover.run(loaded, config)
        cells = summarise(finished.results, finished.groups, config.resplits)
        on = ["method", "score", "alpha"]
        verdict = cells.select(*on, inside=pl.col("status") == "inside")
        rows = finished.results.join(verdict, on=on, maintain_order="left")
        if preset == "plain":
            rows = rows.with_columns(pl.lit(PLAIN).alias("method"))
        parts.append(rows)
    seconds = time.perf_counter() - began
    print(f"{graph}, K = {clients}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return pl.concat(parts).select(
        *CELL, "method", "score", "seed", "set_size", "coverage", "inside", "empty_rate",
        "min_client_coverage", "class_coverage_gap", "accuracy", "train_seconds",
    )  # fmt: skip


def cells(rows: pl.DataFrame) -> str:
    """The default's cells beside the published Gen, ``central`` and plain ``fed``."""
    gen, lines = main_sizes("gen"), []
    counts = dict.fromkeys(("low", "above", "outside", "lower", "surely lower", "surely higher"), 0)
    ratios = []
    own = rows.filter(method=BEST, score=SCORE)
    other = {name: rows.filter(method=name, score=SCORE) for name in ("central", PLAIN)}
    for (graph, clients, alpha), block in own.group_by(CELL, maintain_order=True):
        here = {"dataset": graph, "clients": clients, "alpha": alpha}
        size, coverage = block["set_size"].mean(), block["coverage"].mean()
        target = gen[str(graph), int(clients), round(1 - alpha, 2)]
        owner = other["central"].filter(**here)
        central = size / owner["set_size"].mean()
        fed = other[PLAIN].filter(**here)
        worst, plain = block["min_client_coverage"], fed["min_client_coverage"]
        difference, half = paired(worst - plain)
        ratios.append(central)
        counts["low"] += size <= 0.75 * target
        counts["above"] += size > target
        counts["outside"] += not block["inside"].all()
        counts["lower"] += difference < 0
        counts["surely lower"] += difference < -half
        counts["surely higher"] += difference > half
        lines.append(
            f"| {graph} | {clients} | {1 - alpha:.2f} | {size:.2f} ± {block['set_size'].std():.2f} "
            f"| {coverage:.3f} | {target:.2f} | {size / target:.0%} "
            f"| {fed['set_size'].mean():.2f} | {fed['coverage'].mean():.3f} "
            f"| {central:.2f} | {owner['coverage'].mean():.3f} "
            f"| {worst.mean():.3f} | {plain.mean():.3f} | {difference:+.3f} ± {half:.3f} |"
        )
    head = (
        f"| graph | K | level | {BEST} | covers | published Gen | of it | plain fed | covers "
        "| to central | it covers | worst client | fed's worst | difference |\n|---|" + "--:|" * 13
    )
    total = len(lines)
    summary = (
        f"At most 75 % of the published Gen in {counts['low']} of {total} cells, above it in "
        f"{counts['above']}. Coverage outside its band in {counts['outside']}. To central: mean "
        f"{sum(ratios) / total:.3f}, largest {max(ratios):.2f}. The worst client covers less than "
        f"fed's in {counts['lower']}, surely (95 %) in {counts['surely lower']}; surely more in "
        f"{counts['surely higher']}."
    )
    return "\n".join([head, *lines, "", summary])


def parts(rows: pl.DataFrame) -> str:
    """What each step buys: the mean logarithm of its size relative to the step before."""
    run = ["dataset", "clients", "seed"]
    lines = [
        "| method | score | relative to | " + " | ".join(GRAPHS) + " | all | ± | coverage |",
        "|---" * (len(GRAPHS) + 6) + "|",
    ]
    for method, score, before in STEPS:
        own = rows.filter(method=method, score=score)
        if own.is_empty():
            continue
        covers = own["coverage"].mean() - (1 - own["alpha"]).mean()
        if before is None:
            empty = " | ".join("" for _ in GRAPHS)
            lines.append(f"| {method} | {score} | | {empty} | | | {covers:+.3f} |")
            continue
        old = rows.filter(method=before[0], score=before[1]).select(
            *run, "alpha", pl.col("set_size").alias("old")
        )
        logs = (
            own.join(old, on=[*run, "alpha"])
            .with_columns((pl.col("set_size") / pl.col("old")).log().alias("log"))
            .group_by(run)
            .agg(pl.col("log").mean())
        )
        by_graph = {str(graph): block["log"] for (graph,), block in logs.group_by(["dataset"])}
        means = " | ".join(
            f"{exp(by_graph[g].mean()):.3f}" if g in by_graph else "" for g in GRAPHS
        )
        every = logs["log"]
        lines.append(
            f"| {method} | {score} | {before[0]} {before[1]} | {means} | "
            f"**{exp(every.mean()):.3f}** | "
            f"{every.std() / len(every) ** 0.5:.3f} | {covers:+.3f} |"
        )
    return "\n".join(lines)


def tables(rows: pl.DataFrame) -> str:
    """Both tables, as far as the rows reach."""
    order = pl.col("dataset").replace_strict({g: i for i, g in enumerate(GRAPHS)})
    rows = rows.unique(["method", "score", "seed", *CELL], maintain_order=True).sort(
        order, "clients", "alpha", maintain_order=True
    )
    whole = set(rows["method"]) >= {BEST, "central", PLAIN}
    return f"{cells(rows)}\n\n{parts(rows)}" if whole else parts(rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--graphs", default=",".join(GRAPHS))
    options.add_argument("--clients", default=",".join(map(str, CLIENTS)))
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--out", type=Path, default=Path("sharper.csv"))
    options.add_argument("--runs", default="plain,parts", help="of plain, cells, parts")
    options.add_argument("--again", type=Path, nargs="+", help="the tables of finished files")
    chosen = options.parse_args()
    if chosen.again:
        print(tables(pl.concat([pl.read_csv(file) for file in chosen.again])))
    else:
        done: list[pl.DataFrame] = []
        for graph in chosen.graphs.split(","):
            for clients in map(int, chosen.clients.split(",")):
                done.append(measure(graph, clients, chosen.seeds, chosen.runs.split(",")))
                pl.concat(done).write_csv(chosen.out)
        print(tables(pl.concat(done)))


if __name__ == "__main__":
    main()
