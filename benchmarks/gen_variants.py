"""What was tried for Gen, and what the validation nodes say of it.

Every variant is trained in full with one M and p on the same seeds; the table has the mean pooled
validation loss, by which the defaults were chosen, and beside it the set sizes with their coverage,
by which nothing was chosen. Needs FEDCOVER_DATA.

    python benchmarks/gen_variants.py [--graphs cora,citeseer] [--clients 3,20] [--seeds 3]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

import fedcover
from fedcover.config import GenSettings, recipe_of
from fedcover.simulation.evaluation import Judge
from fedcover.run.methods import METHODS, Setting
from fedcover.simulation.repetition import prepare
from fedcover.run.training import plan_of
from fedcover.federation import Federation, InProcess
from fedcover.federation.ledger import Ledger
from fedcover.party.augment import append_rows
from fedcover.neighbors.gen import generate
from fedcover.party.links import link_plan

FEW = GenSettings(prototypes=(5,), shares=(0.01,))
VARIANTS: dict[str, dict[str, Any]] = {
    "one link a node, weight 0.25": {"link_weight": 0.25},
    "one link a node, weight 0.5": {"link_weight": 0.5},
    "one link a node, weight 1": {"link_weight": 1.0},
    "p = 0.1 of a node's pairs, weight 0.5": {"link_weight": 0.5, "shares": (0.1,)},
    "p = 0.01 of all pairs, weight 0.5": {"linking": "global", "link_weight": 0.5},
    "p = 0.01 of all pairs, weight 1": {"linking": "global", "link_weight": 1.0},
    "p = 0.1 of all pairs, weight 1": {"linking": "global", "link_weight": 1.0, "shares": (0.1,)},
    "control: prototypes with shuffled words, weight 0.25": {"link_weight": 0.25, "shuffle": True},
    "control: links at random, weight 0.25": {"link_weight": 0.25, "random": True},
    "low-degree nodes only, weight 0.5": {"link_weight": 0.5, "most_degree": 2},
    "one way, weight 0.5": {"link_weight": 0.5, "one_way": True},
    "twice the VGAE's rounds, weight 0.5": {"link_weight": 0.5, "link_rounds": 60},
    "VGAE of 128 → 32, weight 0.5": {"link_weight": 0.5, "link_hidden": 128, "link_latent": 32},
}


def only_low_degree(federation: Federation, most: int) -> Federation:
    """Without the links of nodes that have more than ``most`` edges of their own."""
    clients = []
    for client in federation.clients:
        edges = client.edge_index
        new = (edges >= client.own).any(axis=0)
        degree = np.bincount(edges[1, ~new], minlength=client.nodes)
        local = np.where(edges[0] < client.own, edges[0], edges[1])
        clients.append(replace(client, edge_index=edges[:, ~new | (degree[local] <= most)]))
    return replace(federation, clients=clients)


def one_way(federation: Federation) -> Federation:
    """Prototypes send to local nodes and receive nothing."""
    clients = [
        replace(c, edge_index=c.edge_index[:, c.edge_index[1] < c.own]) for c in federation.clients
    ]
    return replace(federation, clients=clients)


def shuffled(federation: Federation, seed: int) -> Federation:
    """The prototypes' features in another order of columns: as many words, but not theirs."""
    clients = []
    for number, client in enumerate(federation.clients):
        order = np.random.default_rng([seed, number]).permutation(client.x.shape[1])
        generated = client.x[client.own :][:, order]
        clients.append(replace(client, x=append_rows(client.x[: client.own], generated)))
    return replace(federation, clients=clients)


def relinked(federation: Federation, seed: int) -> Federation:
    """The same number of links at every prototype, to nodes drawn at random."""
    clients = []
    for number, client in enumerate(federation.clients):
        order = np.random.default_rng([seed, number]).permutation(client.own)
        edges = client.edge_index.copy()
        new = (edges >= client.own).any(axis=0)
        local = edges[:, new]
        edges[:, new] = np.where(
            local < client.own, order[np.minimum(local, client.own - 1)], local
        )
        clients.append(replace(client, edge_index=edges))
    return replace(federation, clients=clients)


CHANGES: dict[str, Callable[[Federation, Any], Federation]] = {
    "most_degree": only_low_degree,
    "one_way": lambda federation, _: one_way(federation),
    "shuffle": lambda federation, _: shuffled(federation, federation.seed),
    "random": lambda federation, _: relinked(federation, federation.seed),
}


def rows(graph_name: str, clients: int, seeds: int, rounds: int, only: str) -> pl.DataFrame:
    graph = fedcover.load(graph_name)
    config = fedcover.Config.preset(
        "plain",
        clients=clients,
        seeds=seeds,
        rounds=rounds,
        scores=("aps-det", "aps", "lac"),
        resplits=50,
    )
    engine = InProcess()
    repetitions = [prepare(graph, config, seed) for seed in config.seed_range]
    judges = [Judge(repetition, config, engine) for repetition in repetitions]
    plan = plan_of(config, len(graph.label_names), recipe_of("fed"))
    setting = Setting(config, engine, plan, lambda *_: None)
    found = []

    def judge(name: str, prepared: list[Any]) -> None:
        trained = engine.train([one.federation for one in prepared], plan)
        for one, model, judge in zip(prepared, trained, judges, strict=True):
            for row in judge.evaluate(one.logits(model), Ledger()).results:
                loss = float(model.valid_loss[model.best_round])
                found.append(
                    {"variant": name, "graph": graph_name, "K": clients, "loss": loss} | row
                )

    bare = METHODS["fed"].prepare(repetitions, setting)
    federations = [one.federation for one in bare]
    judge("fed", bare)
    judge("restored", METHODS["restored"].prepare(repetitions, setting))
    made: dict[str, Any] = {}
    for name, changes in VARIANTS.items():
        if only not in name:
            continue
        inner = {k: v for k, v in changes.items() if k not in CHANGES}
        settings = replace(FEW, **inner)
        key = str(link_plan(settings))
        if key not in made:
            made[key] = generate(federations, settings, engine, [Ledger() for _ in federations])
        augmented = [
            replace(one, settings=settings).augmented(5, settings.shares[0]) for one in made[key]
        ]
        for change in changes.keys() & CHANGES.keys():
            augmented = [CHANGES[change](f, changes[change]) for f in augmented]
        judge(name, [replace(b, federation=f) for b, f in zip(bare, augmented, strict=True)])
    return pl.DataFrame(found).select(
        "variant", "graph", "K", "loss", "score", "alpha", "set_size", "coverage", "accuracy"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--graphs", default="cora,citeseer,pubmed,computers")
    options.add_argument("--clients", default="3,20")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--only", default="", help="variants whose name has this word")
    options.add_argument("--out")
    chosen = options.parse_args()
    tables = []
    for graph in chosen.graphs.split(","):
        for clients in map(int, chosen.clients.split(",")):
            tables.append(rows(graph, clients, chosen.seeds, chosen.rounds, chosen.only))
            if chosen.out:
                pl.concat(tables).write_csv(chosen.out)
            show(tables[-1], f"{graph}, K = {clients}")
    if len(tables) > 1:
        show(pl.concat(tables), "mean of all")


def show(table: pl.DataFrame, title: str) -> None:
    """One Markdown line a variant."""
    sizes = table.group_by("variant", "score", "alpha", maintain_order=True).agg(
        pl.col("set_size", "coverage", "loss", "accuracy").mean()
    )
    keys = sizes.select("score", "alpha").unique(maintain_order=True).rows()
    print(f"\n### {title}\n\n| variant | validation loss | accuracy |", end="")
    print("".join(f" {score} {1 - alpha:.2f} |" for score, alpha in keys))
    print("|---|--:|--:|" + "--:|" * len(keys))
    for (name,), block in sizes.group_by(["variant"], maintain_order=True):
        pairs = block.select("set_size", "coverage").iter_rows()
        cells = "".join(f" {size:.2f} ({covers:.3f}) |" for size, covers in pairs)
        print(
            f"| {name} | {block['loss'][0]:.4f} | {block['accuracy'][0]:.4f} |{cells}", flush=True
        )


if __name__ == "__main__":
    main()
