"""The NeighGens of some parties, trained as one program (FedSage+, section 4).

A simulation stacks many parties; a site's program has one. The encoder is a stack of GraphSAGEs
with the engine's own gradients; autograd serves what is above.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover import fixed_point
from fedcover.config import NeighGenSettings
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError
from fedcover.models.gnn import WEIGHTS, arrays_of, initial_weights
from fedcover.models.vae import Key
from fedcover.party.augment import augment, mean_entries, trimmed
from fedcover.party.neighgen import generator as parts
from fedcover.party.neighgen.generator import Degrees, Generator
from fedcover.party.neighgen.hidden import Matching, impair
from fedcover.training.averaging import Averaging
from fedcover.training.optimiser import adam_state, restore_adam
from fedcover.training.plan import Federation, Index, PartyGraph, Plan
from fedcover.training.receptive_field import Field, GradientField
from fedcover.training.stack import Stack

BLOCK = 2_000_000  # generated values at once


class NeighGens:
    """Encoder, dGen and fGen of every party.

    Within, parties stand in the order of the stack; what goes in and out has the order of ``keys``.
    """

    @torch.no_grad()
    def __init__(
        self, graphs: Sequence[PartyGraph], keys: Sequence[Key], settings: NeighGenSettings
    ) -> None:
        self._settings, self._graphs, self._given = settings, graphs, keys
        impaired = [
            impair(graph, settings.hidden_share, np.random.default_rng([*key, 0x41DE]))
            for graph, key in zip(graphs, keys, strict=True)
        ]
        self._visible = [part.visible for part in impaired]
        hidden, latent = settings.hidden, settings.latent
        self._plan = Plan("sage", latent, hidden=hidden, dropout=0.0, lr=settings.lr)
        stack = self._stack([part.graph for part in impaired])
        self._order = stack.federation_of.tolist()
        self._keys = stack.keys
        nodes = stack.nodes("train")
        self._field = GradientField(stack, nodes)
        self._row_of_node = np.full(len(stack.y), -1)
        self._row_of_node[nodes] = np.arange(len(nodes))
        self._matching = Matching([impaired[p] for p in self._order], settings.most)
        self._party = torch.from_numpy(stack.client_of_node[nodes])
        self._degree = torch.from_numpy(self._matching.degree[nodes]).float()
        self._share = 1 / torch.bincount(self._party)[self._party]

        averaging = Averaging(stack, bits=0)
        rngs = {seed: np.random.default_rng([seed, 0x5A6E]) for seed, _ in keys}
        start = {
            seed: initial_weights("sage", stack.features, hidden, latent, rng)
            for seed, rng in rngs.items()
        }
        self._encoder = averaging.broadcast(averaging.shared([start[seed] for seed, _ in keys]))
        means = torch.zeros(len(keys)).index_add_(0, self._party, self._degree * self._share)
        self._degrees = parts.initial_degrees(self._keys, latent, means)
        self._generator = parts.initial_generator(self._keys, settings, stack.features)
        self._tensors = [*self._encoder, *self._degrees, *self._generator]
        self._adam = torch.optim.Adam(self._tensors, lr=settings.lr, fused=True)
        self._groups: list[Index] = []  # of visible nodes, from the first exchange on
        self._epochs = 0

    def _stack(self, graphs: Sequence[PartyGraph]) -> Stack:
        """Every party as a federation of its own."""
        pairs = zip(graphs, self._given, strict=True)
        return Stack(
            [Federation([g], seed, first=number) for g, (seed, number) in pairs], self._plan
        )

    @torch.no_grad()
    def train(self, epochs: int, received: Sequence[Message]) -> None:
        """Go on until so many epochs are done; ``received`` has what the others found, by party.

        The gradient that came from the others is the same in each step.
        """
        if self._epochs >= epochs:
            return
        cross = self._cross(received)
        while self._epochs < epochs:
            gradients = self._gradients()
            if cross is not None:
                for gradient, more in zip(gradients[-len(cross) :], cross, strict=True):
                    gradient += more
            for tensor, gradient in zip(self._tensors, gradients, strict=True):
                tensor.grad = gradient
            self._adam.step()
            self._epochs += 1

    @torch.no_grad()
    def sent(self) -> list[Message]:
        """By party: its generator and its latent means; nothing of one with too few nodes."""
        z = self._field.outputs(self._field.forward(self._encoder, 0))
        self._check(z.sum(dim=1), self._party.numpy())
        by_place = np.split(z.numpy(), np.cumsum(np.bincount(self._party))[:-1])
        if not self._groups:
            count, least = self._settings.groups, self._settings.min_group
            self._groups = [
                parts.grouped(own, count, least, np.random.default_rng([*key, 0x26B0]))
                for own, key in zip(by_place, self._keys, strict=True)
            ]
        found = []
        for k, (own, group) in enumerate(zip(by_place, self._groups, strict=True)):
            means = parts.group_means(own, group)
            weights = self._generator.of(k, min(len(means), 1)).clone()
            found.append({**arrays_of(weights), "means": means})
        return [found[k] for k in np.argsort(self._order)]

    @torch.no_grad()
    def mended(self) -> list[PartyGraph]:
        """The parties' graphs with generated neighbours: the encoder now reads the whole graphs.

        Their stack has the order and the weight rows of the trained one, since these follow from
        the training nodes and from the features.
        """
        pairs = zip(self._graphs, self._visible, strict=True)
        stack = self._stack([replace(graph, train=visible) for graph, visible in pairs])
        z = Field(stack, np.arange(len(stack.y))).logits(self._encoder)
        missing = self._degrees.predict(z, torch.from_numpy(stack.client_of_node))
        self._check(missing, stack.client_of_node)
        missing = missing.round().clamp(max=self._settings.most).long()
        found = []
        for graph, key, k in zip(self._graphs, self._given, np.argsort(self._order), strict=True):
            own = slice(stack.starts[k], stack.starts[k + 1])
            node, rng = torch.repeat_interleave(missing[own]), np.random.default_rng([*key, 0x3E2D])
            found.append(_mended(graph, z[own], node, self._generator.of(k), rng))
        return found

    def state(self) -> dict[str, NDArray[Any]]:
        """All that training has changed; everything else follows from the graphs and the keys."""
        return {
            "epochs": np.array(self._epochs),
            **{f"tensor.{i}": tensor.numpy() for i, tensor in enumerate(self._tensors)},
            **{f"group.{i}": group for i, group in enumerate(self._groups)},
            **adam_state(self._adam, "adam."),
        }

    @torch.no_grad()
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where :meth:`state` was taken."""
        self._epochs = int(state["epochs"])
        for i, tensor in enumerate(self._tensors):
            tensor.copy_(torch.from_numpy(state[f"tensor.{i}"]))
        restore_adam(self._adam, state, "adam.")
        count = len(self._keys) if "group.0" in state else 0
        self._groups = [state[f"group.{i}"] for i in range(count)]

    def _cross(self, received: Sequence[Message]) -> Generator | None:
        """The others' gradients, weighed: a mean over vectors and other parties."""
        if not any(WEIGHTS[0] in message for message in received):
            return None
        if not self._groups:
            raise DataError("The neighbour generator of this party is lost; mend from the start.")
        cross = Generator(*map(torch.zeros_like, self._generator))
        for k, p in enumerate(self._order):
            if WEIGHTS[0] not in received[p]:
                continue
            pairs = (self._groups[k].max() + 1) * self._settings.most
            weight = self._settings.cross_weight / max(pairs * int(received[p]["others"]), 1)
            for name, tensor in cross._asdict().items():
                own = fixed_point.decode(received[p][name], parts.BITS) * weight
                tensor[k] = torch.from_numpy(own)
        return cross

    def _check(self, values: Tensor, place: Index) -> None:
        """Refuse what is not a number, naming the party; NaNs and infinities do not go away."""
        wrong = np.flatnonzero(~np.isfinite(values.numpy()))
        if len(wrong):
            seed, number = self._keys[place[wrong[0]]]
            raise DataError(
                f"The neighbour generator of party {number} diverged (seed {seed}); "
                "scale the features or lower its learning rate."
            )

    def _gradients(self) -> list[Tensor]:
        """Of all parties' own losses, in the order of the tensors."""
        settings, parties = self._settings, len(self._keys)
        done = self._field.forward(self._encoder, 0)
        z = self._field.outputs(done).requires_grad_()
        rngs = [np.random.default_rng([*key, self._epochs, 0xBA7C]) for key in self._keys]
        nodes = self._matching.draw(rngs, settings.batch)
        rows = torch.from_numpy(self._row_of_node[nodes.ravel()])
        shape = (settings.batch, settings.latent)
        noise = np.stack([rng.standard_normal(shape, dtype=np.float32) for rng in rngs])
        heads = [t.detach().requires_grad_() for t in (*self._degrees, *self._generator)]
        degrees, generator = Degrees(*heads[:2]), Generator(*heads[2:])
        with torch.enable_grad():
            degree = degrees.loss(z, self._party, self._degree) * self._share
            latent = z[rows].view(parties, *shape)
            generated = generator.generate(latent + torch.from_numpy(noise))
            degree_part = settings.degree_weight * degree.sum()
        # The features' loss, a mean over the rows, has the gradient 2(x̃ − nearest) / rows.
        error = generated.detach() - self._matching.nearest(generated.detach(), nodes)
        some = torch.from_numpy(self._matching.has_pairs).float()
        error *= 2 * settings.feature_weight / settings.batch * some[:, None, None]
        of_z, *of_heads = torch.autograd.grad(
            [degree_part, generated], [z, *heads], [torch.ones(()), error]
        )
        return [*self._field.gradients_of(self._encoder, done, of_z), *of_heads]


def _mended(
    graph: PartyGraph, z: Tensor, node: Tensor, generator: Generator, rng: np.random.Generator
) -> PartyGraph:
    """The graph with a generated neighbour for each entry of ``node``."""
    if not len(node):
        return graph
    is_sparse, made = sp.issparse(graph.x), []
    # Columns of a sparse matrix are alike (words, say), and one that is empty here may be what the
    # other parties' replies ask for: one range serves all of them.
    axis = None if is_sparse else 0
    low, high = graph.x.min(axis=axis), graph.x.max(axis=axis)
    for rows in torch.tensor_split(node, -(-len(node) * graph.x.shape[1] // BLOCK)):
        noise = rng.standard_normal((len(rows), z.shape[1]), dtype=np.float32)
        inputs = z[rows] + torch.from_numpy(noise)
        features = np.clip(generator.generate(inputs[None])[0].numpy(), low, high)
        made.append(trimmed(features, mean_entries(graph.x)) if is_sparse else features)
    stacked = sp.vstack(made, format="csr") if is_sparse else np.concatenate(made)
    return augment(graph, stacked, np.stack([np.arange(len(node)), node.numpy()]))
