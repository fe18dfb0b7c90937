"""The paper's heat map as data: RAPS set sizes of Gen over ε and level, Cora, three clients.

For ε = 1, 2, 5, 10, 25 and without differential privacy, with prototypes from the prior (covered
by ε) and, for comparison, from reconstructions (the paper's, not covered); `fed` beside them.

    python benchmarks/privacy.py [--out privacy.csv]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import polars as pl

import fedcover

EPSILONS = (1.0, 2.0, 5.0, 10.0, 25.0, math.inf)
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def measure(epsilon: float, prototypes: str, methods: tuple[str, ...], seeds: int) -> pl.DataFrame:
    config = fedcover.Config.preset(
        "plain",
        clients=3,
        methods=methods,
        scores=("raps",),
        alphas=tuple(round(1 - level, 4) for level in LEVELS),
        seeds=seeds,
        epsilon=epsilon,
        dp_prototypes="prior" if math.isinf(epsilon) else prototypes,
    )
    finished = fedcover.run(fedcover.load("cora"), config)
    spent = finished.info["privacy"]
    return finished.results.with_columns(
        pl.lit(epsilon).alias("epsilon"),
        pl.lit(prototypes).alias("prototypes"),
        pl.lit(spent["epsilon"] if spent else None, dtype=pl.Float64).alias("epsilon_spent"),
        pl.lit(bool(spent and spent["covered"])).alias("covered"),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    tables = []
    print("| method | prototypes | ε |" + "".join(f" {level} | covers |" for level in LEVELS))
    print("|---|---|--:|" + "--:|" * 2 * len(LEVELS))
    for prototypes in ("prior", "reconstructions"):
        for epsilon in EPSILONS:
            if prototypes == "prior" and math.isinf(epsilon):
                continue
            first = not tables
            methods = ("fed", "gen") if first else ("gen",)
            tables.append(measure(epsilon, prototypes, methods, chosen.seeds))
            for method in methods:
                mine = tables[-1].filter(pl.col("method") == method)
                means = mine.group_by("alpha").agg(pl.col("set_size", "coverage").mean())
                rows = means.sort("alpha", descending=True)
                kind = "–" if method == "fed" else prototypes
                shown = "–" if method == "fed" else f"{epsilon:g}"
                pairs = rows.select("set_size", "coverage").iter_rows()
                cells = "".join(f" {size:.2f} | {covers:.3f} |" for size, covers in pairs)
                print(f"| {method} | {kind} | {shown} |{cells}", flush=True)
    if chosen.out:
        pl.concat(tables).drop("train_seconds").write_csv(chosen.out)


if __name__ == "__main__":
    main()
