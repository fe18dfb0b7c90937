r"""NeighGen's parts above its encoder (FedSage+, section 4), for all parties of a stack.

From a node's embedding :math:`z_v`, dGen predicts how many neighbours are missing,
:math:`\tilde n_v = \mathrm{relu}(w^\top z_v + b)`, and fGen, with one hidden layer, what they look
like: :math:`\mathrm{fGen}(z_v + \epsilon)` with a draw of :math:`\epsilon \sim N(0, I)` for each.
Every tensor has the parties in front.

The cross-party term (section 4.2) is an exchange that keeps our privacy rules. Party i wants
vectors near the *others'* nodes, too: for each other party j,

.. math::
    L_{ij} = \sum_{c, p} \min_{t \in T_j} \| \mathrm{fGen}_i(c + \epsilon_{cp}) - t \|^2 .

Through the coordinator, i sends its generator's weights and means c of embeddings over groups of
nodes (never one node's embedding); j returns the gradient of :math:`L_{ij}` with respect to these
weights; i gets the sum over j. The noise is a function of (seed, i, round), which both sides know.

Both kinds of groups are made once and kept: were they made anew each round, the difference of two
means could single out a node that changed its group. ``docs/fedsage.md`` says why :math:`T_j` are
means, too, and what can still be learned.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcover.config import NeighGenSettings
from fedcover.models.gnn import Weights
from fedcover.models.vae import Key, dense
from fedcover.party.prototypes import cluster, means, merge_small
from fedcover.plans import generator_shapes
from fedcover.training.plan import Features, Index, Rows

BITS = 24
"""Of a gradient's fraction: about what a float32 near 1 has, and sums may still reach 2^38. A sum
over fifty vectors of features far from one scale can be large; it is small only where they are."""
GROUPED = 500  # nodes of a party behind its feature means
PROJECTED = 32


class Generator(Weights):
    """fGen: the weights that parties exchange, (parties, latent, hidden) and so on."""

    __slots__ = ()

    def generate(self, inputs: Tensor) -> Tensor:
        """Feature vectors (parties, rows, features) from noisy embeddings (parties, rows, latent).

        The last layer is linear; the range of the features is imposed when a graph is mended.
        """
        hidden = torch.baddbmm(self.first_bias, inputs, self.first).relu()
        return torch.baddbmm(self.second_bias, hidden, self.second)

    def of(self, place: int, count: int = 1) -> "Generator":
        """One party's generator, or none; it still has the parties' dimension."""
        return Generator(*(tensor[place : place + count] for tensor in self))


class Degrees(NamedTuple):
    """dGen."""

    weights: Tensor  # (parties, latent)
    bias: Tensor  # (parties,)

    def predict(self, z: Tensor, party: Tensor) -> Tensor:
        """The number of missing neighbours of each row of ``z``, given the row's party."""
        return ((z * self.weights[party]).sum(dim=1) + self.bias[party]).relu()

    def loss(self, z: Tensor, party: Tensor, true: Tensor) -> Tensor:
        """Smooth L1 for each node (its paper's equation for dGen)."""
        return functional.smooth_l1_loss(self.predict(z, party), true, reduction="none")


def initial_degrees(keys: Sequence[Key], latent: int, means: Tensor) -> Degrees:
    """Small weights around the parties' mean numbers of hidden neighbours.

    From there a relu cannot start dead, and the constant prediction need not be learned.
    """
    rngs = [np.random.default_rng([*key, 0xD6E1]) for key in keys]
    return Degrees(_uniform(rngs, (latent,), 1 / latent), means.clone())


def initial_generator(keys: Sequence[Key], settings: NeighGenSettings, features: int) -> Generator:
    """Glorot-uniform matrices and zero biases, from each party's key alone."""
    rngs = [np.random.default_rng([*key, 0xF6E1]) for key in keys]
    return Generator(
        *(
            torch.zeros(len(keys), *shape)
            if name.endswith("bias")
            else _uniform(rngs, shape, math.sqrt(6 / sum(shape)))
            for name, shape in generator_shapes(settings, features).items()
        )
    )


def _uniform(rngs: Sequence[np.random.Generator], shape: tuple[int, ...], limit: float) -> Tensor:
    drawn = np.stack([rng.uniform(-limit, limit, shape).astype(np.float32) for rng in rngs])
    return torch.from_numpy(drawn)


def grouped(points: Rows, count: int, min_size: int, rng: np.random.Generator) -> Index:
    """A group for each row, of ``min_size`` rows at least; -1 where there are not so many."""
    centres, _ = cluster(points, count, min_size, rng)
    if not len(centres):
        return np.full(len(points), -1)
    distance = np.square(centres).sum(axis=1) - 2 * points @ centres.T
    return merge_small(points, distance.argmin(axis=1), min_size)


def group_means(points: Rows, group: Index) -> Rows:
    """The mean of every group of :func:`grouped`: no row if there is none."""
    if group[0] < 0:
        return points[:0]
    return means(points, group).astype(np.float32)


def answering_rows(x: Features, settings: NeighGenSettings, rng: np.random.Generator) -> Rows:
    """The rows that a party answers with: means of groups of its nodes, or some of its nodes.

    Groups are found in a random projection, where k-means takes a fraction of the time.
    """
    limit = GROUPED if settings.targets == "means" else settings.target_nodes
    rows = dense(x[np.sort(rng.permutation(x.shape[0])[:limit])])
    if settings.targets == "nodes":
        return rows
    projection = rng.standard_normal((rows.shape[1], PROJECTED), dtype=np.float32)
    group = grouped(rows @ projection, settings.target_groups, settings.min_group, rng)
    return group_means(rows, group)


def noisy_inputs(
    latent_means: Rows, owner: Index, most: int, seed: int, round_: int
) -> tuple[Tensor, Tensor]:
    """What each sender's generator makes vectors from: ``most`` draws around each of its means.

    (senders, rows, latent), and how many rows each sender really has: the others are padding.
    """
    senders, counts = np.unique(owner, return_counts=True)
    inputs = np.zeros((len(senders), counts.max() * most, latent_means.shape[1]), np.float32)
    own_means = np.split(latent_means, np.cumsum(counts)[:-1])
    for into, sender, own in zip(inputs, senders, own_means, strict=True):
        rng = np.random.default_rng([seed, int(sender), round_, 0xC205])
        noise = rng.standard_normal((len(own), most, own.shape[1]), dtype=np.float32)
        into[: len(own) * most] = (own[:, None] + noise).reshape(-1, own.shape[1])
    return torch.from_numpy(inputs), torch.from_numpy(counts * most)


def summed_gradients(
    generator: Generator,
    inputs: tuple[Tensor, Tensor],
    senders: Index,
    targets: Mapping[int, Rows],
) -> Generator:
    """For each sender i, the sum of the gradients of L_ij over the parties j in ``targets``.

    The forward and the backward pass of i's generator are the same whoever computes them, so that a
    process with many parties does them once, with the sum of the errors that these parties find.
    """
    weights = [tensor.detach().requires_grad_() for tensor in generator]
    with torch.enable_grad():
        generated = Generator(*weights).generate(inputs[0])
    error = _errors(generated.detach(), inputs[1], senders, targets)
    return Generator(*torch.autograd.grad(generated, weights, error))


def _errors(generated: Tensor, rows: Tensor, senders: Index, targets: Mapping[int, Rows]) -> Tensor:
    """The gradient of the cross terms in the generated vectors."""
    answering = {j: torch.from_numpy(t) for j, t in targets.items() if len(t)}
    if not answering:
        return torch.zeros_like(generated)
    flat = generated.view(-1, generated.shape[2])
    chosen, start = [], 0
    for target in answering.values():
        half_norm = 0.5 * target.square().sum(dim=1)
        distance = torch.addmm(half_norm, flat, target.T, alpha=-1)
        chosen.append(distance.argmin(dim=1) + start)
        start += len(target)
    # A party does not answer itself, and rows beyond a sender's latent means are padding.
    real = torch.arange(generated.shape[1]) < rows[:, None]
    other = torch.tensor(list(answering)) != torch.from_numpy(senders)[:, None]
    weight = (real[:, :, None] & other[:, None, :]).flatten(0, 1).to(flat.dtype)
    places, table = torch.stack(chosen, dim=1), torch.cat(list(answering.values()))
    nearest = functional.embedding_bag(places, table, mode="sum", per_sample_weights=weight)
    return (2 * (flat * weight.sum(dim=1, keepdim=True) - nearest)).view_as(generated)
