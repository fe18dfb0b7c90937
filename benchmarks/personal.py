"""What +prior and +mix cost in training time, as ratios to plain ``fed`` in the same run.

One process trains ``fed``, ``fed+prior``, the tuned and the local models of ``+mix`` in turns, on
one thread, forwards and backwards, so that all see the same machine; the median of the ratios
within a turn is the result. `make bench`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import torch

import fedcover
from fedcover.config import recipe_of
from fedcover.errors import DataError
from fedcover.plans import plan_of
from fedcover.simulation.repetition import federation, prepare, settled
from fedcover.training.plan import Federation
from fedcover.training.program import Program

CASES = {"cora": (10, 10), "citeseer": (10, 10), "pubmed": (10, 8), "computers": (10, 6)}
MODELS = {  # a recipe, and which of its models
    "fed": ("fed", "shared"),
    "prior": ("fed+prior", "shared"),
    "tuned": ("fed+prior+mix", "tuned"),
    "local": ("fed+prior+mix", "local"),
}


def measure(graph: str, clients: int, repeats: int, scale: int) -> dict[str, float]:
    """Median seconds of ``fed``, and of each kind's ratio to it.

    ``scale`` divides all numbers of rounds alike.
    """
    data = fedcover.load(graph)
    config = settled(fedcover.Config(clients=clients), data)
    parties = federation(prepare(data, config, 0), config).parties
    stack = [Federation([party.graph for party in parties], 0)]
    plans = {}
    for kind, (name, model) in MODELS.items():
        plan = plan_of(config, len(data.label_names), recipe_of(name).models[model])
        plans[kind] = replace(plan, rounds=max(plan.rounds // scale, 1))
    seconds: dict[str, list[float]] = {kind: [] for kind in plans}
    for turn in range(repeats):
        for kind in list(plans)[:: 1 if turn % 2 else -1]:
            began, program = time.perf_counter(), Program(stack, plans[kind])
            for round_ in range(plans[kind].rounds):
                program.fit(round_)
                if plans[kind].average:
                    program.average()
                program.losses()
            seconds[kind].append(time.perf_counter() - began)
    ratios = {
        kind: statistics.median(t / fed for t, fed in zip(times, seconds["fed"], strict=True))
        for kind, times in seconds.items()
    }
    return {**ratios, "fed": statistics.median(seconds["fed"])}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--only", choices=CASES)
    options.add_argument("--scale", type=int, default=4, help="train a share of the rounds")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    print("| graph | K | fed, s | +prior adds | +mix adds (tuned, local) |")
    print("|---|--:|--:|--:|--:|")
    for graph, (clients, repeats) in CASES.items():
        if chosen.only not in (None, graph):
            continue
        try:
            took = measure(graph, clients, repeats, chosen.scale)
        except DataError as error:
            print(f"| {graph} | {clients} | skipped: {error} |")
            continue
        print(
            f"| {graph} | {clients} | {took['fed']:.2f} | {took['prior'] - 1:+.1%} "
            f"| {took['tuned'] + took['local']:+.0%} ({took['tuned']:.0%}, {took['local']:.0%}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
