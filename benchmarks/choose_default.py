"""Choose the default recipe, one for all graphs and K, on the training share alone.

The calibration and test nodes of every repetition keep their features and edges but get no role,
so that no label of theirs is seen. The training share (a fifth of each client) is divided again:
a quarter judges the recipes, a fifth of the rest validates, the others train. A recipe's size in a
cell (graph, K, level) is the mean number of labels over re-splits of the judging nodes at the
pooled quantile (rank ⌈(1−α)(N+1)⌉, since the exact rule has no finite rank for so few nodes).
Recipes are compared by the mean logarithm of their size relative to plain ``fed`` with LAC; the
error is that of the paired differences over graphs, K and seeds. "parts" compares the parts,
"scores" the scores of the full recipe, the others change one of its settings. Needs FEDCOVER_DATA;
half an hour for all on two cores.

    python benchmarks/choose_default.py --out choose_default.csv [--graphs cora] [--clients 3,10]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch_geometric.data import Data

import fedcover
from fedcover.config import Config, PersonalSettings
from fedcover.graphs import Role
from fedcover.party.data import PartyData
from fedcover.simulation.evaluation import Judge
from fedcover.simulation.repetition import Repetition, prepare
from fedcover.simulation.run import Simulation

GRAPHS = ("cora", "citeseer", "pubmed", "computers")
CLIENTS = (3, 20)
SEEDS = {"cora": 4, "citeseer": 4, "pubmed": 1, "computers": 1}  # few judges: more seeds
NO_ROLE = -1
JUDGES, VALIDATES = 0.25, 0.2  # shares of the training share, and of what is left of it

SCORES = ("lac", "dlac", "slac", "aps", "daps", "snaps", "raps")
PARTS = (
    "fed",
    "fed+prior",
    "fed+prox",
    "fed+tuned",
    "fed+mix",
    "fed+prox+prior",
    "fed+prox+mix",
    "fed+prior+mix",
    "fed+prox+prior+tuned",
    "fed+prox+prior+mix",
)
WINNER = PARTS[-1]


def personal(**changes: Any) -> dict[str, Any]:
    return {"personal": PersonalSettings(**{"prior_smoothing": 1.0, **changes})}


BASE: dict[str, Any] = {
    "methods": (WINNER,),
    "scores": ("lac",),
    "lr": 0.01,
    "unit_features": False,
    **personal(),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "parts": {"methods": PARTS},
    "scores": {"scores": SCORES},
    "prox 0.3": personal(prox=0.3),
    "prior smoothing 5": personal(prior_smoothing=5.0),
    "prior strength 1": personal(prior_strength=1.0),
    "common weights": personal(shrinkage=float("inf")),
    "features of length 1 and lr 0.03": {"unit_features": True, "lr": 0.03},
    "the default: length 1; lr 0.03; smoothing 5": {
        "unit_features": True,
        "lr": 0.03,
        "personal": PersonalSettings(),
    },
}


def inner_roles(party: PartyData) -> NDArray[np.int8]:
    """Roles within the training share; calibration and test nodes get none."""
    rng = np.random.default_rng([*party.key, 0xC400])
    inner = np.full_like(party.roles, NO_ROLE)
    share = (party.roles == Role.TRAIN) | (party.roles == Role.VALID)
    nodes = rng.permutation(np.flatnonzero(share))
    judges = max(round(JUDGES * len(nodes)), 2)
    valid = round(VALIDATES * (len(nodes) - judges))
    inner[nodes[:judges:2]], inner[nodes[1:judges:2]] = Role.CALIB, Role.TEST
    inner[nodes[judges : judges + valid]] = Role.VALID
    inner[nodes[judges + valid :]] = Role.TRAIN
    return inner


def inner(graph: Data, config: Config, seed: int) -> Repetition:
    """One seed's repetition, within its training share."""
    outer = prepare(graph, config, seed)
    return replace(outer, data=[replace(one, roles=inner_roles(one)) for one in outer.data])


def measure(graph: Data, config: Config, label: str) -> pl.DataFrame:
    """Sizes of all the configuration's methods and scores on the judging nodes."""
    repetitions = [inner(graph, config, seed) for seed in config.seed_range]
    simulation, rows = Simulation(repetitions, config, lambda *_: None), []
    for name in config.methods:
        federations, outcomes = simulation.train(name)
        simulation.calibrate(name, federations, outcomes)
        for own, outcome in zip(federations, outcomes, strict=True):
            judged = Judge(own.repetition, config).evaluate(own, outcome)
            key = {
                "graph": graph.name, "clients": config.clients, "seed": own.repetition.seed,
                "variant": label, "method": name,
            }  # fmt: skip
            rows += [
                {**key, **{k: row[k] for k in ("score", "alpha", "set_size", "coverage")}}
                for row in judged.results
            ]
    return pl.DataFrame(rows)


def relative(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean logarithm of the size relative to ``fed`` with LAC, and its error over the runs."""
    run = ["graph", "clients", "seed"]
    plain = rows.filter(variant="parts", method="fed", score="lac").select(
        *run, "alpha", pl.col("set_size").alias("default")
    )
    logs = rows.join(plain, on=[*run, "alpha"]).with_columns(
        (pl.col("set_size") / pl.col("default")).log().alias("log")
    )
    recipe = ["variant", "method", "score"]
    by_graph = (
        logs.group_by(*recipe, "graph", maintain_order=True)
        .agg(pl.col("log").mean().exp())
        .pivot(on="graph", index=recipe, values="log", maintain_order=True)
    )
    overall = (
        logs.group_by(*recipe, *run)
        .agg(pl.col("log").mean())
        .group_by(*recipe, "graph")
        .agg(pl.col("log").mean(), (pl.col("log").var() / pl.len()).alias("variance"))
        .group_by(recipe)  # every graph counts alike, however many seeds it had
        .agg(
            pl.col("log").mean().exp().alias("relative"),
            (pl.col("variance").sum().sqrt() / pl.len()).alias("error"),
        )
    )
    covers = rows.group_by(recipe).agg((pl.col("coverage") + pl.col("alpha") - 1).mean())
    return by_graph.join(overall, on=recipe).join(covers, on=recipe).sort("relative")


def markdown(table: pl.DataFrame) -> str:
    graphs = [g for g in GRAPHS if g in table.columns]
    lines = [
        "| settings | method | score | " + " | ".join(graphs) + " | all | ± | coverage |",
        "|---" * (len(graphs) + 6) + "|",
    ]
    for row in table.iter_rows(named=True):
        sizes = " | ".join(f"{row[g]:.3f}" for g in graphs)
        lines.append(
            f"| {row['variant']} | {row['method']} | {row['score']} | {sizes} | "
            f"**{row['relative']:.3f}** | {row['error'] or 0:.3f} | {row['coverage']:+.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--graphs", default=",".join(GRAPHS))
    options.add_argument("--clients", default=",".join(map(str, CLIENTS)))
    options.add_argument("--variants", default=",".join(VARIANTS))
    options.add_argument("--out", type=Path, default=Path("choose_default.csv"))
    options.add_argument("--again", type=Path, nargs="+", help="only the table, of these files")
    chosen = options.parse_args()
    if chosen.again:
        print(markdown(relative(pl.concat([pl.read_csv(file) for file in chosen.again]))))
        return
    parts: list[pl.DataFrame] = []
    for graph in map(fedcover.load, chosen.graphs.split(",")):
        for clients in map(int, chosen.clients.split(",")):
            for label in chosen.variants.split(","):
                began = time.perf_counter()
                config = Config(
                    **{
                        "clients": clients,
                        "seeds": SEEDS[graph.name],
                        "quantiles": ("pooled",),
                        **BASE,
                        **VARIANTS[label],
                    }
                )
                parts.append(measure(graph, config, label))
                pl.concat(parts).write_csv(chosen.out)
                seconds = time.perf_counter() - began
                print(f"{graph.name}, K = {clients}, {label}: {seconds:.0f} s", file=sys.stderr)
    print(markdown(relative(pl.concat(parts))))


if __name__ == "__main__":
    main()
