"""Do Gen's links point at the true cut edges? Areas under the ROC curve on the four graphs.

``owner``: of all pairs of a node and another client, is the score higher where the cut took an
edge? ``boundary``: is a node's best score higher where it lost an edge at all? Chance is 0.5.
Only a simulation knows the cut edges, so nothing here is used to choose or train anything.
Needs FEDCOVER_DATA.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import fedcover
from fedcover.algorithm.gen import linker
from fedcover.carriers.loopback import Loopback
from fedcover.carriers.stacked import Stacked
from fedcover.graphs.partition import ClientGraph, Partition, client_graphs, partition
from fedcover.party.data import cut_parties
from fedcover.party.generated import Received, received
from fedcover.party.party import Party

GRAPHS = ("cora", "citeseer", "pubmed", "computers")
CLIENTS = (3, 5, 10, 20)
SEEDS = 3


def main() -> None:
    print("| graph | K | owner, M = 2 | 5 | 10 | 20 | boundary, M = 2 | 5 | 10 | 20 |")
    print("|---|--:|" + "--:|" * 8)
    for name in GRAPHS:
        graph = fedcover.load(name)
        features, classes = int(graph.num_features), len(graph.label_names)
        for clients in CLIENTS:
            config = fedcover.Config.preset("plain", clients=clients, seeds=SEEDS)
            cuts = [partition(graph, clients, config.partition, s) for s in config.seed_range]
            repetitions = [
                Loopback([Party(d, config, classes) for d in cut_parties(graph, cut, config, s)])
                for s, cut in zip(config.seed_range, cuts, strict=True)
            ]
            Stacked(repetitions).carry([linker(config, features) for _ in repetitions])
            found = np.array(
                [
                    [
                        link_quality(
                            [received(party)[m] for party in repetition.parties],
                            client_graphs(graph, cut),
                            cut,
                        )
                        for m in config.gen.prototypes
                    ]
                    for repetition, cut in zip(repetitions, cuts, strict=True)
                ]
            )
            values = found.mean(axis=0).T.ravel()
            cells = "".join(f" {value:.2f} |" for value in values)
            print(f"| {name} | {clients} |{cells}", flush=True)


class LinkQuality(NamedTuple):
    """Areas under the ROC curve, 0.5 by chance; the mean over the clients that have both kinds."""

    owner: float  # does this node have a cut edge to that client?
    boundary: float  # does this node have a cut edge at all?


def link_quality(
    received: Sequence[Received], parts: Sequence[ClientGraph], partition: Partition
) -> LinkQuality:
    """Judge the scores of all pairs of one federation, for one M.

    A node's score for another client is the largest inner product with that client's prototypes.
    """
    owner_aucs, boundary_aucs = [], []
    for number, (got, part) in enumerate(zip(received, parts, strict=True)):
        truth = _cut_to(part, partition, number)
        senders = np.unique(got.owner)
        if not len(senders):
            continue
        scores = got.local @ got.latent.T
        by_sender = np.stack([scores[:, got.owner == j].max(axis=1) for j in senders], axis=1)
        owner_aucs.append(_auc(truth[:, senders].ravel(), by_sender.ravel()))
        lost_any: NDArray[np.bool_] = np.logical_or.reduce(truth, axis=1)
        boundary_aucs.append(_auc(lost_any, by_sender.max(axis=1)))
    return LinkQuality(_mean(owner_aucs), _mean(boundary_aucs))


def _cut_to(part: ClientGraph, partition: Partition, number: int) -> NDArray[np.bool_]:
    """For each node of a client and each other client, whether the cut took an edge there."""
    cut = partition.cut_edges
    lost = cut[:, partition.client[cut[1]] == number]
    table = np.zeros((len(part.nodes), partition.clients), dtype=bool)
    table[np.searchsorted(part.nodes, lost[1]), partition.client[lost[0]]] = True
    return table


def _mean(aucs: Sequence[float]) -> float:
    """Of those that exist; NaN without any."""
    known = [auc for auc in aucs if not np.isnan(auc)]
    return float(np.mean(known)) if known else float("nan")


def _auc(truth: NDArray[np.bool_], scores: NDArray[np.float32]) -> float:
    if truth.all() or not truth.any():
        return float("nan")
    return float(roc_auc_score(truth, scores))


if __name__ == "__main__":
    main()
