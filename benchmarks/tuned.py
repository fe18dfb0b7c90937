"""Does `fedcover tune` help? A preset's settings against tuned ones, paired by seed.

For each seed the settings are chosen on that seed's validation nodes; both settings are then run on
the same seed, whose calibration and test nodes had no part in the choice. Without a time limit, so
that the choice is the same again.

    python benchmarks/tuned.py --out tuned.csv [--graph cora] [--method fed] [--preset plain]

The patients of docs/choosing.md, in the folder that docs/own-graph.md makes:

    python benchmarks/tuned.py --out patients.csv --graph patients --partition given --seeds 20
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import polars as pl

import fedcover
from fedcover.config import Config
from fedcover.simulation.run import run
from fedcover.tuning import tune

COLUMNS = ("seed", "model", "score", "alpha", "set_size", "coverage", "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="cora")
    parser.add_argument("--method", default="fed")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--partition", default="metis")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--candidates", type=int, default=18)
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    graph = fedcover.load(options.graph)
    rows = []
    for seed in range(options.seeds):
        common = {
            "methods": (options.method,),
            "scores": ("lac",),
            "first_seed": seed,
            "partition": options.partition,
        }
        default = Config.preset(options.preset, **common, seeds=1)
        began = time.perf_counter()
        tuned = tune(
            graph,
            Config.preset(options.preset, **common, rounds=options.rounds),
            candidates=options.candidates,
            seeds=options.trainings,
        )
        seconds = time.perf_counter() - began
        best, given = tuned.tried.row(0, named=True), tuned.tried.filter(candidate=0)
        print(f"seed {seed}, {seconds:.0f} s: {best}; as given {given['valid_loss'][0]:.4f}")
        print(f"  its loss minus that as given, and the standard error: {tuned.gain}")
        for name, config in (("as given", default), ("tuned", tuned.config)):
            held = run(graph, config).results.select(COLUMNS)
            settings = pl.DataFrame(
                {
                    "settings": name,
                    "hidden": config.hidden,
                    "lr": config.lr,
                    "dropout": config.dropout,
                    "local_epochs": config.local_epochs,
                    "rounds": config.rounds,
                }
            )
            rows.append(settings.join(held, how="cross"))
        table = pl.concat(rows)
        table.write_csv(options.out)
    means = pl.col("set_size", "coverage", "accuracy").mean()
    print(table.group_by("settings", "alpha", maintain_order=True).agg(means))
    pairs = table.pivot("settings", index=["seed", "alpha"], values="set_size")
    difference = (pl.col("tuned") / pl.col("as given")).log()
    print(
        pairs.group_by("alpha", maintain_order=True).agg(
            difference.mean().alias("mean log ratio of sizes"),
            (difference.std() / pl.len().sqrt()).alias("standard error"),
        )
    )


if __name__ == "__main__":
    main()
