r"""FedSage+'s cross-client term (its section 4.2) by an exchange that keeps our privacy rules.

Client i wants vectors near the *others'* nodes, too: for each other client j,

.. math::
    L_{ij} = \sum_{c, p} \min_{t \in T_j} \| \mathrm{fGen}_i(c + \epsilon_{cp}) - t \|^2 .

Through the server, i sends its generator's weights and means c of embeddings over groups of nodes
(never one node's embedding); j returns the gradient of :math:`L_{ij}` with respect to these weights
(:func:`reply`); the server adds the replies up and passes the sum to i. The noise is a function of
(seed, i, round), which both sides know.

Both kinds of groups are made once and kept: were they made anew each round, the difference of two
means could single out a node that changed its group. ``docs/fedsage.md`` says why :math:`T_j` are
means, too, and what can still be learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcover.conformal.protocol import Direction
from fedcover.federation.ledger import Ledger
from fedcover.neighbors.neighgen import Generator, NeighGenSettings
from fedcover.neighbors.prototypes import cluster, means, merge_small
from fedcover.neighbors.vaes import dense
from fedcover.training.layout import Index
from fedcover.training.plan import Features
from fedcover.training.sparse import Bag
from fedcover.training.stack import Stack

GROUPED = 500  # nodes of a client behind its feature means
PROJECTED = 32


def reply(generator: Generator, inputs: Tensor, targets: Tensor) -> Generator:
    """What client j returns for client i's generator: the gradient of L_ij in the weights.

    ``generator`` and ``inputs`` (1, rows, latent) are i's, ``targets`` (rows, features) are j's.
    """
    weights = [tensor.detach().requires_grad_() for tensor in generator]
    with torch.enable_grad():
        generated = Generator(*weights).generate(inputs)[0]
        with torch.no_grad():
            nearest = targets[torch.cdist(generated, targets).argmin(dim=1)]
        loss = (generated - nearest).square().sum()
    return Generator(*torch.autograd.grad(loss, weights))


def grouped(
    points: NDArray[np.float32], count: int, min_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """A group for each row, of ``min_size`` rows at least; -1 where there are not so many."""
    centres, _ = cluster(points, count, min_size, rng)
    if not len(centres):
        return np.full(len(points), -1)
    distance = np.square(centres).sum(axis=1) - 2 * points @ centres.T
    return merge_small(points, distance.argmin(axis=1), min_size)


def answers(
    x: Features, settings: NeighGenSettings, rng: np.random.Generator
) -> NDArray[np.float32]:
    """The rows that a client answers with: means of groups of its nodes, or some of its nodes.

    Groups are found in a random projection, where k-means takes a fraction of the time.
    """
    limit = GROUPED if settings.targets == "means" else settings.target_nodes
    rows = dense(x[np.sort(rng.permutation(x.shape[0])[:limit])])
    if settings.targets == "nodes":
        return rows
    projection = rng.standard_normal((rows.shape[1], PROJECTED), dtype=np.float32)
    group = grouped(rows @ projection, settings.target_groups, settings.min_group, rng)
    if group[0] < 0:
        return rows[:0]
    return means(rows, group).astype(np.float32)


class Exchange:
    """All exchanges of all stacked federations at once."""

    def __init__(self, stack: Stack, settings: NeighGenSettings, z: Tensor) -> None:
        """``z`` are the visible nodes' embeddings before the first exchange."""
        self._settings = settings
        self._keys = list(zip(stack.seed_of.tolist(), stack.number_of.tolist(), strict=True))
        self._members = [np.flatnonzero(stack.federation_of == f) for f in range(stack.federations)]
        self._group_means(stack, z.numpy())
        self.targets = [
            answers(client.x, settings, np.random.default_rng([*key, 0x7A46]))
            for client, key in zip(stack.clients, self._keys, strict=True)
        ]

    def _group_means(self, stack: Stack, z: NDArray[np.float32]) -> None:
        """The matrix that takes z to the clients' latent means, ``groups`` rows a client."""
        width, sizes = self._settings.groups, [len(c.train) for c in stack.clients]
        row, weight, self.means = [], [], []
        for k, mine in enumerate(np.split(z, np.cumsum(sizes)[:-1])):
            rng = np.random.default_rng([*self._keys[k], 0x26B0])
            group = grouped(mine, width, self._settings.min_group, rng)
            counts = np.bincount(group[group >= 0], minlength=width)
            self.means.append(int((counts > 0).sum()))
            row.append(np.where(group < 0, 0, group) + k * width)
            weight.append(np.where(group < 0, 0.0, 1 / np.maximum(counts, 1)[group]))
        shape = (len(sizes) * width, len(z))
        entries = (np.concatenate(weight), (np.concatenate(row), np.arange(len(z))))
        self._mean = Bag(sp.csr_array(entries, shape=shape))

    def inputs(self, z: Tensor, round_: int) -> Tensor:
        """Latent means plus noise, ``most`` draws of each: (clients, groups · most, latent)."""
        means = self._mean(z).view(len(self._keys), self._settings.groups, 1, z.shape[1])
        shape = (self._settings.groups, self._settings.most, z.shape[1])
        noise = [
            np.random.default_rng([*key, round_, 0xC205]).standard_normal(shape, np.float32)
            for key in self._keys
        ]
        return (means + torch.from_numpy(np.stack(noise))).flatten(1, 2)

    def gradients(self, generator: Generator, z: Tensor, round_: int) -> Generator:
        """For each client i the sum over the other clients j of :func:`reply`.

        The forward and the backward pass of i's generator are the same whoever computes them, so
        here they are done once with the sum of the errors that the other clients would find.
        """
        weights = [tensor.detach().requires_grad_() for tensor in generator]
        with torch.enable_grad():
            generated = Generator(*weights).generate(self.inputs(z, round_))
        error = torch.zeros_like(generated)
        for members in self._members:
            error[members] = self._errors(generated.detach()[members], members)
        return Generator(*torch.autograd.grad(generated, weights, error))

    def _errors(self, generated: Tensor, members: Index) -> Tensor:
        """The gradient of one federation's cross terms in its generated vectors."""
        targets = [torch.from_numpy(self.targets[k]) for k in members]
        answering = [j for j, target in enumerate(targets) if len(target)]
        if not answering:
            return torch.zeros_like(generated)
        clients, rows, features = generated.shape
        flat = generated.view(-1, features)
        chosen, start = flat.new_empty(len(flat), len(answering), dtype=torch.long), 0
        for place, j in enumerate(answering):
            half_norm = 0.5 * targets[j].square().sum(dim=1)
            distance = torch.addmm(half_norm, flat, targets[j].T, alpha=-1)
            chosen[:, place] = distance.argmin(dim=1) + start
            start += len(targets[j])
        # A client does not answer itself, and rows beyond its latent means are padding.
        means = torch.tensor([self.means[k] for k in members])
        real = torch.arange(rows) < means[:, None] * self._settings.most
        other = torch.tensor(answering) != torch.arange(clients)[:, None]
        weight = (real[:, :, None] & other[:, None, :]).flatten(0, 1).to(flat.dtype)
        nearest = functional.embedding_bag(
            chosen, torch.cat(targets), mode="sum", per_sample_weights=weight
        )
        errors = 2 * (flat * weight.sum(dim=1, keepdim=True) - nearest)
        return errors.view_as(generated)

    def shares(self) -> Tensor:
        """1 / (pairs · other clients) for each client: what makes a mean of its sum."""
        others = np.empty(len(self._keys))
        for members in self._members:
            others[members] = len(members) - 1
        pairs = np.array(self.means) * self._settings.most * others
        return torch.from_numpy(1 / np.maximum(pairs, 1)).float()[:, None, None]

    def record(self, generator: Generator, ledgers: Sequence[Ledger]) -> None:
        """Every array that travels, one ledger a federation; what goes together is one array."""
        shapes = [tuple(tensor.shape[1:]) for tensor in generator]
        latent = generator.first.shape[1]
        for ledger, members in zip(ledgers, self._members, strict=True):
            senders = [k for k in members if self.means[k]]
            answering = [k for k in members if len(self.targets[k])]
            for k in members:
                messages: list[tuple[str, Direction, tuple[int, ...]]] = []
                if k in senders and set(answering) - {k}:
                    messages += [("generator", "up", shape) for shape in shapes]
                    messages += [("latent means", "up", (self.means[k], latent))]
                    messages += [("generator gradient", "down", shape) for shape in shapes]
                others = [i for i in senders if i != k]
                if k in answering and others:
                    rows = sum(self.means[i] for i in others)
                    stacked = [(len(others), *shape) for shape in shapes]
                    messages += [("generator", "down", shape) for shape in stacked]
                    messages += [("latent means", "down", (rows, latent))]
                    messages += [("generator gradient", "up", shape) for shape in stacked]
                number, rounds = int(self._keys[k][1]), self._settings.rounds
                for kind, direction, shape in messages:
                    size = math.prod(shape) * generator.first.element_size()
                    ledger.record(kind, direction, number, 0, shape, size, rounds)
