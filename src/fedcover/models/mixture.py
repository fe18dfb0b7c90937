r"""A convex combination of models, its weights chosen on validation nodes.

.. math:: p(y \mid x) = \sum_m w_m\, p_m(y \mid x), \qquad w_m \ge 0, \; \sum_m w_m = 1

The weights come from a grid on the simplex. Every client sends the summed loss of each grid point
over its validation nodes; the server returns the federation's mean. A client takes the point with
the lowest sum of its own loss and ``shrinkage`` times that mean: with few validation nodes it
follows the federation, with many itself. What the sums give away is in ``docs/privacy.md``.
"""

from collections.abc import Sequence
from itertools import combinations
from math import isinf

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.protocol import Client, Message, Server
from fedcover.fixed_point import decode, encode

STEPS = 10  # weights are multiples of a tenth
TINY = 1e-300  # a probability that underflowed still has a logarithm
BITS = 24  # of the fraction of a loss that is sent
EQUAL = 1e-9  # of the lowest loss, and of 1: nearer points differ by rounding alone

Probs = NDArray[np.float64]


def simplex(models: int, steps: int = STEPS) -> Probs:
    """All weight vectors that are multiples of 1/steps, points x models; (1, 0, …) is the first."""
    bars = combinations(range(steps + models - 1), models - 1)
    edges = np.array([(-1, *bar, steps + models - 1) for bar in bars])
    return (np.diff(edges, axis=1) - 1)[::-1] / steps


def mixed(probs: Sequence[Probs], weights: Probs) -> Probs:
    """The mixture of each model's probabilities; one weight vector, or one a node."""
    each = np.broadcast_to(weights, (len(probs[0]), len(probs)))
    return np.asarray(np.einsum("mnc,nm->nc", np.stack(probs), each))


def losses(true_probs: Probs, grid: Probs) -> Probs:
    """The summed -log p(y) at each grid point; ``true_probs`` is nodes x models."""
    return np.asarray(-np.log(np.maximum(true_probs @ grid.T, TINY)).sum(axis=0))


def mixture_client(grid: Probs) -> Client[Probs]:
    """Send the summed loss of every grid point, in fixed point, and how many nodes it is of."""

    def answer(true_probs: Probs, _query: Message) -> Message:
        return {"losses": encode(losses(true_probs, grid), BITS), "n": np.array([len(true_probs)])}

    return answer


def mixture_server() -> Server[Probs]:
    """The federation's mean loss at each grid point; zeros without any validation node."""
    replies = yield {}
    total = decode(sum(reply["losses"] for reply in replies), BITS)
    count = sum(int(reply["n"][0]) for reply in replies)
    return np.asarray(total / max(count, 1))


def choose_weights(true_probs: Probs, mean_losses: Probs, grid: Probs, shrinkage: float) -> Probs:
    """One client's weights, from its own validation nodes and the federation's mean losses.

    The first of the equally good points: two models may be the same (tuning that did no good), and
    rounding must not choose.
    """
    loss = mean_losses
    if not isinf(shrinkage):
        loss = losses(true_probs, grid) + shrinkage * mean_losses
    return np.asarray(grid[np.argmax(loss <= loss.min() + EQUAL * (1 + np.abs(loss.min())))])
