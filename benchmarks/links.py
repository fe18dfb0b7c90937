"""Do Gen's links point at the true cut edges? Areas under the ROC curve on the four graphs.

``owner``: of all pairs of a node and another client, is the score higher where the cut took an
edge? ``boundary``: is a node's best score higher where it lost an edge at all? Chance is 0.5.
Needs FEDCOVER_DATA.
"""

from __future__ import annotations

import numpy as np

import fedcover
from fedcover.run.methods import cut
from fedcover.simulation.repetition import prepare
from fedcover.federation import InProcess
from fedcover.federation.ledger import Ledger
from fedcover.neighbors.gen import generate
from fedcover.neighbors.quality import link_quality

GRAPHS = ("cora", "citeseer", "pubmed", "computers")
CLIENTS = (3, 5, 10, 20)
SEEDS = 3


def main() -> None:
    print("| graph | K | owner, M = 2 | 5 | 10 | 20 | boundary, M = 2 | 5 | 10 | 20 |")
    print("|---|--:|" + "--:|" * 8)
    engine = InProcess()
    for name in GRAPHS:
        graph = fedcover.load(name)
        for clients in CLIENTS:
            config = fedcover.Config.preset("plain", clients=clients, seeds=SEEDS)
            repetitions = [prepare(graph, config, seed) for seed in config.seed_range]
            bare = [cut(repetition) for repetition in repetitions]
            federations = [one.federation for one in bare]
            made = generate(federations, config.gen, engine, [Ledger() for _ in federations])
            found = np.array(
                [
                    [
                        link_quality(one.received[m], prepared.parts, repetition.partition)
                        for m in config.gen.prototypes
                    ]
                    for one, prepared, repetition in zip(made, bare, repetitions, strict=True)
                ]
            )
            values = found.mean(axis=0).T.ravel()
            cells = "".join(f" {value:.2f} |" for value in values)
            print(f"| {name} | {clients} |{cells}", flush=True)


if __name__ == "__main__":
    main()
