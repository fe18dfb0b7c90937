"""The plain engine: one client after another, PyG's own layers and autograd.

It is written to be obviously right, not fast: the oracle for tests and the other side of the
benchmarks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedcover.federation.engine import (
    Client,
    Federation,
    Here,
    OnRound,
    Plan,
    Trained,
    batches,
    diverged,
    initialiser,
)
from fedcover.models import Weights, initial_weights, to_module
from fedcover.models.gnn import from_module, load_weights


class Reference(Here):
    """Clients in a Python loop."""

    def train(
        self, federations: Sequence[Federation], plan: Plan, *, on_round: OnRound | None = None
    ) -> list[Trained]:
        """Train every federation under the plan, one by one."""
        return [_train(federation, plan, on_round) for federation in federations]


class _Site:
    """One client with its own module and optimiser."""

    def __init__(self, client: Client, weights: Weights, plan: Plan) -> None:
        dense = client.x.toarray() if sp.issparse(client.x) else client.x
        self.x = torch.from_numpy(np.asarray(dense)).to(plan.dtype)
        self.edge_index = torch.from_numpy(client.edge_index)
        self.y = torch.from_numpy(client.y)
        self.train = torch.from_numpy(np.sort(client.train))
        self.valid = torch.from_numpy(client.valid)
        self.module = to_module(plan.model, weights, plan.dropout)
        self.adam = torch.optim.Adam(self.module.parameters(), lr=plan.lr)

    def fit(self, steps: list[NDArray[np.int64]]) -> None:
        self.module.train()
        for positions in steps:
            nodes = self.train[torch.from_numpy(positions)]
            self.adam.zero_grad()
            logits = self.module(self.x, self.edge_index)
            torch.autograd.backward(cross_entropy(logits[nodes], self.y[nodes]))
            self.adam.step()

    @torch.no_grad()
    def logits(self) -> Tensor:
        self.module.eval()
        output: Tensor = self.module(self.x, self.edge_index)
        return output


def _train(federation: Federation, plan: Plan, on_round: OnRound | None) -> Trained:
    began = time.perf_counter()
    features = federation.clients[0].x.shape[1]
    start = initial_weights(
        plan.model, features, plan.hidden, plan.classes, initialiser(federation.seed)
    ).to(plan.dtype)
    sites = [_Site(client, start, plan) for client in federation.clients]
    sizes = torch.tensor([len(c.train) for c in federation.clients], dtype=torch.float64)
    best, best_loss, best_round, history = [start], np.inf, -1, []
    validated = any(len(site.valid) for site in sites)
    for round_ in range(plan.rounds):
        for number, site in enumerate(sites):
            site.fit(batches(len(site.train), plan, federation.seed, number, round_))
        if plan.average:
            shared = _mean([from_module(plan.model, s.module) for s in sites], sizes / sizes.sum())
            for site in sites:
                load_weights(plan.model, site.module, shared)
        loss = _pooled_loss(sites)
        history.append(loss)
        if loss < best_loss or not validated:
            best = [from_module(plan.model, s.module) for s in sites]
            best_loss, best_round = loss, round_
        if on_round is not None:
            on_round(round_ + 1)
    if best_round < 0:
        raise diverged()
    for site, weights in zip(sites, best, strict=True):
        load_weights(plan.model, site.module, weights)
    logits = [site.logits().numpy() for site in sites]
    return Trained(best, logits, np.array(history), best_round, time.perf_counter() - began)


def _mean(weights: Sequence[Weights], shares: Tensor) -> Weights:
    dtype = weights[0].first.dtype
    columns = zip(*(w.tensors() for w in weights), strict=True)
    return Weights(*(sum(s * t for s, t in zip(shares, c, strict=True)).to(dtype) for c in columns))


def _pooled_loss(sites: Sequence[_Site]) -> float:
    count = sum(len(s.valid) for s in sites)
    total = sum(
        float(cross_entropy(s.logits()[s.valid], s.y[s.valid], reduction="sum").double())
        for s in sites
        if len(s.valid)
    )
    return total / count if count else float("nan")
