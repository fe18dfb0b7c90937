"""How well generated links point at the true cut edges: a judgement no party could make.

Only a simulation knows the cut edges, so that nothing here is used to choose or train anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcover.graphs.partition import ClientGraph, Partition
from fedcover.party.generated import Received


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
    from sklearn.metrics import roc_auc_score

    if truth.all() or not truth.any():
        return float("nan")
    return float(roc_auc_score(truth, scores))
