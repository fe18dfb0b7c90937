r"""The variational graph auto-encoder (Kipf & Welling, 2016) that predicts links.

The encoder is a two-layer GCN whose outputs are the latent means and log deviations side by side,
:math:`Z = \mu + \varepsilon \odot e^{\log\sigma}`; the decoder is the inner product,
:math:`\hat P_{uv} = \mathrm{sigmoid}(z_u^\top z_v)`. The loss is PyG's: the mean cross-entropy over
linked pairs, plus that over sampled pairs without a link, plus the divergence from the standard
normal divided by the number of nodes.

What is random depends on nothing but (seed, client, step), so that all engines agree.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MAX_LOGSTD = 10.0  # as in PyG
MOST_PAIRS = 4096  # linked pairs a client's step looks at; more are sampled


Pairs = NDArray[np.int64]  # two nodes each, (2, m)


class PairSampler:
    """Draws the pairs that a client's steps look at; ``nodes`` are its own, the first ones.

    Generated nodes have no links yet. If they served as examples of nodes without links, the model
    would learn to tell them from real ones, which is the opposite of its purpose.
    """

    def __init__(self, edge_index: Pairs, nodes: int, seed: int, client: int) -> None:
        self._edges, self._nodes, self._key = edge_index, nodes, (seed, client)
        self._codes = np.sort(edge_index[0] * nodes + edge_index[1])

    def __call__(self, step: int) -> tuple[Pairs, Pairs]:
        """The step's pairs: with a link, and without."""
        rng = np.random.default_rng([*self._key, step, 0x11A6])
        edges = self._edges
        if edges.shape[1] > MOST_PAIRS:
            edges = edges[:, rng.integers(edges.shape[1], size=MOST_PAIRS)]
        pairs = rng.integers(self._nodes, size=(2, edges.shape[1]))
        codes = pairs[0] * self._nodes + pairs[1]
        place = np.searchsorted(self._codes, codes)
        linked = self._codes[np.minimum(place, len(self._codes) - 1)] == codes
        return edges, pairs[:, ~(linked | (pairs[0] == pairs[1]))]


def noise(nodes: int, latent: int, seed: int, client: int, step: int) -> NDArray[np.float32]:
    """The step's standard normal draws (nodes × latent)."""
    rng = np.random.default_rng([seed, client, step, 0xE95])
    return rng.standard_normal((nodes, latent), dtype=np.float32)


class Shares(NamedTuple):
    """One over the number of its kind at its client, so that sums become clients' means."""

    linked: Tensor  # of each linked pair
    apart: Tensor  # of each pair without a link
    nodes: Tensor


def link_loss(
    outputs: Tensor, epsilon: Tensor, linked: Tensor, apart: Tensor, shares: Shares
) -> Tensor:
    """The sum of all clients' losses."""
    mu, logstd = outputs.chunk(2, dim=1)
    logstd = logstd.clamp(max=MAX_LOGSTD)
    z = mu + epsilon * logstd.exp()
    return recon_loss(z, linked, apart, shares) + kl_loss(mu, logstd, shares)


def recon_loss(z: Tensor, linked: Tensor, apart: Tensor, shares: Shares) -> Tensor:
    """The cross-entropy of the pairs: its mean over those with a link, plus that over the rest."""
    near = (z[linked[0]] * z[linked[1]]).sum(dim=1)
    far = (z[apart[0]] * z[apart[1]]).sum(dim=1)
    softplus = torch.nn.functional.softplus
    return (softplus(-near) * shares.linked).sum() + (softplus(far) * shares.apart).sum()


def kl_loss(mu: Tensor, logstd: Tensor, shares: Shares) -> Tensor:
    """The mean divergence from the standard normal, over the number of nodes once more."""
    divergence = -0.5 * (1 + 2 * logstd - mu**2 - (2 * logstd).exp()).sum(dim=1)
    return (divergence * shares.nodes**2).sum()
