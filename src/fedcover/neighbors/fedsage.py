"""FedSage+ (Zhang et al., NeurIPS 2021): every client's graph mended by a generator of neighbours.

Each client learns from neighbours that it hides itself (:mod:`~fedcover.neighbors.impair`) and from
the other clients' replies (:mod:`~fedcover.neighbors.exchange`); FedAvg GraphSAGE on the mended
graphs is the method ``fedsage+``. All clients are trained as one program, like the GNNs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.errors import DataError, UsageError
from fedcover.federation import Client, Federation, Plan
from fedcover.federation.averaging import Averaging
from fedcover.federation.engine import Features, OnRound
from fedcover.federation.field import Field, GradientField
from fedcover.federation.layout import Index
from fedcover.federation.ledger import Ledger
from fedcover.federation.stack import Stack
from fedcover.models import initial_weights
from fedcover.neighbors.augment import augment, mean_entries, trimmed
from fedcover.neighbors.exchange import Exchange
from fedcover.neighbors.impair import impair
from fedcover.neighbors.matching import Matching
from fedcover.neighbors.neighgen import (
    Degrees,
    Generator,
    NeighGenSettings,
    degree_loss,
    feature_loss,
    initial_degrees,
    initial_generator,
)

TOGETHER = 30_000  # nodes trained in one program; more would only need more memory
BLOCK = 2_000_000  # generated values at once


@torch.no_grad()
def mend(
    federations: Sequence[Federation],
    settings: NeighGenSettings,
    ledgers: Sequence[Ledger],
    on_round: OnRound | None = None,
) -> list[Federation]:
    """The same federations with generated neighbours appended to every client's graph.

    ``ledgers[f]`` takes what the clients of federation f exchange. ``on_round`` is called with
    the number of exchanges that all federations have behind them.
    """
    if len(ledgers) != len(federations):
        raise UsageError(
            f"There are {len(ledgers)} ledgers, but must be {len(federations)}, one a federation."
        )
    mended: list[Federation] = []
    parts = _parts(federations)
    for p, part in enumerate(parts):

        def report(round_: int, done: int = p * settings.rounds) -> None:
            rounds, more = divmod(done + round_, len(parts))
            if on_round is not None and not more:
                on_round(rounds)

        start = len(mended)
        mended += _Program(part, settings).run(ledgers[start : start + len(part)], report)
    return mended


def _parts(federations: Sequence[Federation]) -> list[list[Federation]]:
    """Neighbouring federations in as large parts as are trained together."""
    parts: list[list[Federation]] = []
    room = 0
    for federation in federations:
        nodes = sum(client.nodes for client in federation.clients)
        if nodes > room:
            parts.append([])
            room = TOGETHER
        parts[-1].append(federation)
        room -= nodes
    return parts


class _Program:
    """Encoder, dGen and fGen of all clients of some federations."""

    def __init__(self, federations: Sequence[Federation], settings: NeighGenSettings) -> None:
        self._federations, self._settings = federations, settings
        impaired = [
            [
                impair(c, settings.hidden_share, np.random.default_rng([f.seed, k, 0x41DE]))
                for k, c in enumerate(f.clients)
            ]
            for f in federations
        ]
        self._stack = stack = Stack(
            [
                Federation([part.client for part in parts], f.seed)
                for parts, f in zip(impaired, federations, strict=True)
            ],
            Plan("sage", settings.latent, hidden=settings.hidden, dropout=0.0, lr=settings.lr),
        )
        self._keys = list(zip(stack.seed_of.tolist(), stack.number_of.tolist(), strict=True))
        nodes = stack.nodes("train")
        self._field = GradientField(stack, nodes)
        self._row_of_node = np.full(len(stack.y), -1)
        self._row_of_node[nodes] = np.arange(len(nodes))
        self._matching = Matching(
            [impaired[f][k] for f, k in zip(stack.federation_of, stack.number_of, strict=True)],
            settings.most,
        )
        self._client = torch.from_numpy(stack.client_of_node[nodes])
        self._degree = torch.from_numpy(self._matching.degree[nodes]).float()
        self._share = 1 / torch.bincount(self._client)[self._client]
        self._has_pairs = torch.from_numpy(self._matching.has_pairs).float()

        averaging = Averaging(stack)
        size = (stack.features, settings.hidden, settings.latent)
        rngs = [np.random.default_rng([f.seed, 0x5A6E]) for f in federations]
        start = averaging.shared([initial_weights("sage", *size, rng) for rng in rngs])
        self._encoder = averaging.broadcast(start)
        means = torch.zeros(len(self._keys)).index_add_(0, self._client, self._degree * self._share)
        self._degrees = initial_degrees(self._keys, settings.latent, means)
        self._generator = initial_generator(
            self._keys, settings.latent, settings.hidden, stack.features
        )
        self._tensors = [*self._encoder.tensors(), *self._degrees, *self._generator]
        self._adam = torch.optim.Adam(self._tensors, lr=settings.lr, fused=True)
        self._rngs = [np.random.default_rng([*key, 0xBA7C]) for key in self._keys]

    def run(self, ledgers: Sequence[Ledger], report: OnRound) -> list[Federation]:
        """Train alone, then with the others, then mend."""
        settings = self._settings
        self._train(settings.warm_up, None)
        if settings.cross_weight > 0 and settings.rounds > 0:
            exchange = Exchange(self._stack, settings, self._latent())
            exchange.record(self._generator, ledgers)
            weight = settings.cross_weight * exchange.shares()
        for round_ in range(settings.rounds):
            cross = None
            if settings.cross_weight > 0:
                replies = exchange.gradients(self._generator, self._latent(), round_)
                cross = Generator(*(weight * gradient for gradient in replies))
            self._train(settings.local_epochs, cross)
            report(round_ + 1)
        return self._mended()

    def _latent(self) -> Tensor:
        """The visible nodes' embeddings in the impaired graphs."""
        z = self._field.outputs(self._field.forward(self._encoder, 0))
        self._check(z.sum(dim=1), self._client.numpy())
        return z

    def _check(self, values: Tensor, client: Index) -> None:
        """Refuse what is not a number, naming the client; NaNs and infinities do not go away."""
        wrong = np.flatnonzero(~np.isfinite(values.numpy()))
        if len(wrong):
            seed, number = self._keys[client[wrong[0]]]
            raise DataError(
                f"The neighbour generator of client {number} diverged (seed {seed}); "
                "scale the features or lower its learning rate."
            )

    def _train(self, epochs: int, cross: Generator | None) -> None:
        """Local steps; the gradient that came from the others is the same in each of them."""
        for _ in range(epochs):
            gradients = self._gradients()
            if cross is not None:
                for gradient, more in zip(gradients[-len(cross) :], cross, strict=True):
                    gradient += more
            for tensor, gradient in zip(self._tensors, gradients, strict=True):
                tensor.grad = gradient
            self._adam.step()

    def _gradients(self) -> list[Tensor]:
        """Of all clients' own losses, in the order of the tensors."""
        settings, clients = self._settings, len(self._keys)
        done = self._field.forward(self._encoder, 0)
        z = self._field.outputs(done).requires_grad_()
        nodes = self._matching.draw(self._rngs, settings.batch)
        rows = torch.from_numpy(self._row_of_node[nodes.ravel()])
        heads = [t.detach().requires_grad_() for t in (*self._degrees, *self._generator)]
        degrees, generator = Degrees(*heads[:2]), Generator(*heads[2:])
        with torch.enable_grad():
            degree = degree_loss(degrees.predict(z, self._client), self._degree) * self._share
            latent = z[rows].view(clients, settings.batch, settings.latent)
            generated = generator.generate(latent + self._noise())
            nearest = self._matching.nearest(generated.detach(), nodes)
            feature = feature_loss(generated, nearest).mean(dim=1) * self._has_pairs
            loss = settings.degree_weight * degree.sum() + settings.feature_weight * feature.sum()
        of_z, *of_heads = torch.autograd.grad(loss, [z, *heads])
        return [*self._field.gradients_of(self._encoder, done, of_z), *of_heads]

    def _noise(self) -> Tensor:
        shape = (self._settings.batch, self._settings.latent)
        return torch.from_numpy(
            np.stack([rng.standard_normal(shape, dtype=np.float32) for rng in self._rngs])
        )

    def _mended(self) -> list[Federation]:
        """Encode the whole graphs and append what the generators make of it."""
        stack = self._whole()
        z = Field(stack, np.arange(len(stack.y))).logits(self._encoder)
        degree = self._degrees.predict(z, torch.from_numpy(stack.client_of_node))
        self._check(degree, stack.client_of_node)
        clients: list[list[Client]] = [list(f.clients) for f in self._federations]
        for k, (start, stop) in enumerate(zip(stack.starts[:-1], stack.starts[1:], strict=True)):
            f, number = stack.federation_of[k], stack.number_of[k]
            counts = degree[start:stop].round().clamp(max=self._settings.most).long()
            rng = np.random.default_rng([*self._keys[k], 0x3E2D])
            clients[f][number] = _mended_client(
                clients[f][number], self._generator.of(k), z[start:stop], counts, rng
            )
        return [
            Federation(mine, f.seed) for mine, f in zip(clients, self._federations, strict=True)
        ]

    def _whole(self) -> Stack:
        """The stack of the whole graphs, in the order and with the weight rows of the trained one.

        Its order is that of the training nodes, so that it gets those of the impaired graphs.
        """
        order = {key: k for k, key in enumerate(zip(*self._places(), strict=True))}
        whole = [
            Federation(
                [
                    replace(client, train=self._stack.clients[order[f, c]].train)
                    for c, client in enumerate(federation.clients)
                ],
                federation.seed,
            )
            for f, federation in enumerate(self._federations)
        ]
        return Stack(whole, self._stack.plan)

    def _places(self) -> tuple[list[int], list[int]]:
        return self._stack.federation_of.tolist(), self._stack.number_of.tolist()


def _mended_client(
    client: Client, generator: Generator, z: Tensor, counts: Tensor, rng: np.random.Generator
) -> Client:
    """The client with ``counts[v]`` generated neighbours at node v."""
    node = torch.repeat_interleave(counts)
    if not len(node):
        return client
    low, high = _range(client.x)
    is_sparse, made = sp.issparse(client.x), []
    for rows in torch.tensor_split(node, -(-len(node) * client.x.shape[1] // BLOCK)):
        noise = rng.standard_normal((len(rows), z.shape[1]), dtype=np.float32)
        inputs = z[rows] + torch.from_numpy(noise)
        features = np.clip(generator.generate(inputs[None])[0].numpy(), low, high)
        made.append(trimmed(features, mean_entries(client.x)) if is_sparse else features)
    stacked = sp.vstack(made, format="csr") if is_sparse else np.concatenate(made)
    return augment(client, stacked, np.stack([np.arange(len(node)), node.numpy()]))


def _range(x: Features) -> tuple[Features, Features]:
    """The least and the largest value: of each dense column, or of a sparse matrix as a whole.

    Columns of a sparse matrix are alike (words, say), and one that is empty here may be what the
    other clients' replies ask for.
    """
    if sp.issparse(x):
        return x.min(), x.max()
    return x.min(axis=0), x.max(axis=0)
