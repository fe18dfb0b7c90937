"""The NeighGens of all clients of some federations, trained as one program (FedSage+, section 4).

The encoder is a stack of GraphSAGEs with the engine's own gradients; autograd serves what is above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcover.errors import DataError
from fedcover.federation import Federation, Plan
from fedcover.federation.ledger import Ledger
from fedcover.models import initial_weights
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
from fedcover.training.averaging import Averaging
from fedcover.training.layout import Index
from fedcover.training.plan import OnRound
from fedcover.training.receptive_field import Field, GradientField
from fedcover.training.stack import Stack


@dataclass(frozen=True)
class Learned:
    """One client's embeddings of its whole graph, its predictions, and its feature generator."""

    z: Tensor  # (nodes, latent)
    missing: Tensor  # (nodes,): predicted numbers of missing neighbours, 0 … most
    generator: Generator  # with the clients' dimension, of length 1


class NeighGens:
    """Encoder, dGen and fGen of every client."""

    def __init__(self, federations: Sequence[Federation], settings: NeighGenSettings) -> None:
        self._settings = settings
        self._federations = federations
        self._impaired = [
            [
                impair(c, settings.hidden_share, np.random.default_rng([f.seed, k, 0x41DE]))
                for k, c in enumerate(f.clients)
            ]
            for f in federations
        ]
        self._plan = Plan(
            "sage", settings.latent, hidden=settings.hidden, dropout=0.0, lr=settings.lr
        )
        self._stack = stack = Stack(
            [
                Federation([part.client for part in parts], f.seed)
                for parts, f in zip(self._impaired, federations, strict=True)
            ],
            self._plan,
        )
        self._places = list(
            zip(stack.federation_of.tolist(), stack.number_of.tolist(), strict=True)
        )
        self._keys = list(zip(stack.seed_of.tolist(), stack.number_of.tolist(), strict=True))
        nodes = stack.nodes("train")
        self._field = GradientField(stack, nodes)
        self._row_of_node = np.full(len(stack.y), -1)
        self._row_of_node[nodes] = np.arange(len(nodes))
        self._matching = Matching([self._impaired[f][k] for f, k in self._places], settings.most)
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

    def train(self, ledgers: Sequence[Ledger], on_round: OnRound) -> None:
        """Every client alone, then with the others' replies; one ledger a federation."""
        settings = self._settings
        self._steps(settings.warm_up, None)
        if settings.cross_weight > 0 and settings.rounds > 0:
            exchange = Exchange(self._stack, settings, self._latent())
            exchange.record(self._generator, ledgers)
            weight = settings.cross_weight * exchange.shares()
        for round_ in range(settings.rounds):
            cross = None
            if settings.cross_weight > 0:
                replies = exchange.gradients(self._generator, self._latent(), round_)
                cross = Generator(*(weight * gradient for gradient in replies))
            self._steps(settings.local_epochs, cross)
            on_round(round_ + 1)

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

    def _steps(self, epochs: int, cross: Generator | None) -> None:
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

    def results(self) -> list[list[Learned]]:
        """What mending needs, by federation and client: the encoder now reads the whole graphs.

        Their stack has the order and the weight rows of the trained one, since these follow from
        the training nodes and from the features.
        """
        whole = [
            Federation(
                [
                    replace(client, train=part.visible)
                    for client, part in zip(f.clients, parts, strict=True)
                ],
                f.seed,
            )
            for f, parts in zip(self._federations, self._impaired, strict=True)
        ]
        stack = Stack(whole, self._plan)
        z = Field(stack, np.arange(len(stack.y))).logits(self._encoder)
        missing = self._degrees.predict(z, torch.from_numpy(stack.client_of_node))
        self._check(missing, stack.client_of_node)
        missing = missing.round().clamp(max=self._settings.most).long()
        bounds = stack.starts.tolist()
        by_place = {
            place: Learned(z[start:stop], missing[start:stop], self._generator.of(k))
            for k, (place, start, stop) in enumerate(
                zip(self._places, bounds[:-1], bounds[1:], strict=True)
            )
        }
        return [
            [by_place[f, k] for k in range(len(federation.clients))]
            for f, federation in enumerate(self._federations)
        ]
