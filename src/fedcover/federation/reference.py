"""The plain engine: one client after another, PyG's own layers and autograd.

It is written to be obviously right, not fast: the oracle for tests and the other side of the
benchmarks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.nn import VGAE

from fedcover.models import Weights, initial_weights, to_module
from fedcover.models.gnn import from_module, load_weights
from fedcover.models.vgae import MAX_LOGSTD, PairSampler, noise
from fedcover.training.plan import (
    Federation,
    Here,
    OnRound,
    Plan,
    Trained,
    batches,
    diverged,
    initialiser,
    inputs,
    log_prior,
)


class Reference(Here):
    """Clients in a Python loop."""

    def train(
        self,
        federations: Sequence[Federation],
        plan: Plan,
        *,
        start: Sequence[Weights] | None = None,
        on_round: OnRound | None = None,
    ) -> list[Trained]:
        """Train every federation under the plan, one by one."""
        starts: Sequence[Weights | None] = start or [None] * len(federations)
        pairs = zip(federations, starts, strict=True)
        return [_train(federation, plan, begin, on_round) for federation, begin in pairs]


class _Site:
    """One client with its own module and optimiser."""

    def __init__(self, federation: Federation, number: int, weights: Weights, plan: Plan) -> None:
        client = federation.clients[number]
        self.plan, self.key = plan, (federation.seed, number)
        x = inputs(client, plan)
        dense = x.toarray() if sp.issparse(x) else x
        self.x = torch.from_numpy(np.asarray(dense)).to(plan.dtype)
        self.edge_index = torch.from_numpy(client.edge_index)
        self.edge_weight = torch.from_numpy(client.edge_weight).to(plan.dtype)
        self.y = torch.from_numpy(client.y)
        self.train = torch.from_numpy(np.sort(client.train))
        self.valid = torch.from_numpy(client.valid)
        prior = np.zeros(plan.classes) if plan.task == "links" else log_prior(client, plan)
        self.prior = torch.from_numpy(prior).to(plan.dtype)
        self.module = to_module(plan.model, weights, plan.dropout)
        self.adam = torch.optim.Adam(self.module.parameters(), lr=plan.lr)
        real = (client.edge_index < client.own).all(axis=0)
        self.pairs = PairSampler(client.edge_index[:, real], client.own, *self.key)

    def _outputs(self) -> Tensor:
        outputs: Tensor
        if self.plan.model == "sage" and (self.edge_weight != 1).any():
            outputs = _weighted_sage(self.module, self.x, self.edge_index, self.edge_weight)
        else:
            weight = self.edge_weight if self.plan.model == "gcn" else None
            outputs = self.module(self.x, self.edge_index, edge_weight=weight)
        return outputs + self.prior

    def fit(self, round_: int) -> None:
        self.module.train()
        losses = {"labels": self._label_losses, "links": self._link_losses}
        sent = [p.detach().clone() for p in self.module.parameters()]
        for loss in losses[self.plan.task](round_):
            if self.plan.prox and self.plan.average:  # FedProx (Li et al., 2020)
                pairs = zip(self.module.parameters(), sent, strict=True)
                loss = loss + self.plan.prox / 2 * sum(((p - s) ** 2).sum() for p, s in pairs)
            self.adam.zero_grad()
            torch.autograd.backward(loss)
            self.adam.step()

    def _label_losses(self, round_: int) -> Iterator[Tensor]:
        for positions in batches(len(self.train), self.plan, *self.key, round_):
            nodes = self.train[torch.from_numpy(positions)]
            logits = self._outputs()
            yield cross_entropy(logits[nodes], self.y[nodes])

    def _link_losses(self, round_: int) -> Iterator[Tensor]:
        model = VGAE(torch.nn.Identity())  # it would draw its encoder's weights anew
        for epoch in range(self.plan.local_epochs):
            step = (round_ << 20) + epoch
            mu, logstd = self._outputs().chunk(2, dim=1)
            draws = noise(len(mu), mu.shape[1], *self.key, step)
            epsilon = torch.from_numpy(draws).to(mu.dtype)
            z = mu + epsilon * logstd.clamp(max=MAX_LOGSTD).exp()
            linked, apart = (torch.from_numpy(pairs) for pairs in self.pairs(step))
            yield model.recon_loss(z, linked, apart) + model.kl_loss(mu, logstd) / len(mu)

    @torch.no_grad()
    def logits(self) -> Tensor:
        self.module.eval()
        output: Tensor = self._outputs()
        return output


def _train(
    federation: Federation, plan: Plan, begin: Weights | None, on_round: OnRound | None
) -> Trained:
    began = time.perf_counter()
    features = federation.clients[0].x.shape[1]
    drawn = begin or initial_weights(
        plan.model, features, plan.hidden, plan.classes, initialiser(federation.seed)
    )
    start = drawn.to(plan.dtype)
    sites = [_Site(federation, k, start, plan) for k in range(len(federation.clients))]
    alike = plan.task == "links"
    sizes = torch.tensor([1.0 if alike else len(c.train) for c in federation.clients]).double()
    best, best_loss, best_round, history = [start] * len(sites), np.inf, -1, []
    validated = any(len(site.valid) for site in sites)
    if begin is not None:
        best_loss, best_round, history = _pooled_loss(sites), 0, [_pooled_loss(sites)]
    for round_ in range(plan.rounds):
        for site in sites:
            site.fit(round_)
        if plan.average:
            shared = _mean([from_module(plan.model, s.module) for s in sites], sizes / sizes.sum())
            for site in sites:
                load_weights(plan.model, site.module, shared)
        loss = _pooled_loss(sites)
        history.append(loss)
        if loss < best_loss or not validated:
            best = [from_module(plan.model, s.module) for s in sites]
            best_loss, best_round = loss, len(history) - 1
        if on_round is not None:
            on_round(round_ + 1)
        if plan.patience is not None and len(history) - 1 - best_round >= plan.patience:
            break
    if best_round < 0:
        raise diverged()
    for site, weights in zip(sites, best, strict=True):
        load_weights(plan.model, site.module, weights)
    logits = [site.logits().numpy() for site in sites]
    rounds, seconds = len(history) - (begin is not None), time.perf_counter() - began
    return Trained(best, logits, np.array(history), best_round, rounds, seconds)


def _weighted_sage(module: nn.Module, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
    """PyG's GraphSAGE knows no edge weights: its own linear maps over a weighted mean."""
    source, target = edge_index
    for last, conv in zip((False, True), module.convs, strict=True):  # type: ignore[arg-type]
        total = x.new_zeros(len(x)).index_add(0, target, weight)
        summed = torch.zeros_like(x).index_add(0, target, weight[:, None] * x[source])
        mean = summed / torch.where(total > 0, total, 1.0)[:, None]
        x = conv.lin_l(mean) + conv.lin_r(x)
        if not last:
            x = module.dropout(x.relu())  # type: ignore[operator]
    return x


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
