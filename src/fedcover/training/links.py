"""The link-prediction loss over all stacked clients, on top of the same fields as the labels'."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.models import vgae
from fedcover.training.receptive_field import GradientField
from fedcover.training.stack import Parameters, Stack


class LinkField(GradientField):
    """All nodes, with the gradient of each client's VGAE loss."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, np.arange(len(stack.y)))
        self._stack = stack
        self._samplers = [
            vgae.PairSampler(_real_edges(c.edge_index, c.own), c.own, int(seed), int(number))
            for c, seed, number in zip(stack.clients, stack.seed_of, stack.number_of, strict=True)
        ]
        share = 1.0 / np.diff(stack.starts)
        self._node_shares = self._tensor(share[stack.client_of_node])

    def gradients(self, p: Parameters, step: int) -> list[Tensor]:
        """In the parameters' order; ``step`` numbers the draws."""
        done = self.forward(p, step)
        with torch.enable_grad():
            outputs = self.outputs(done).requires_grad_()
            loss = vgae.link_loss(outputs, self._noise(step), *self._pairs(step))
            (gradient,) = torch.autograd.grad(loss, outputs)
        return self.gradients_of(p, done, gradient)

    def _noise(self, step: int) -> Tensor:
        stack, latent = self._stack, self._stack.plan.classes // 2
        draws = [
            vgae.noise(client.nodes, latent, int(seed), int(number), step)
            for client, seed, number in zip(
                stack.clients, stack.seed_of, stack.number_of, strict=True
            )
        ]
        return self._tensor(np.concatenate(draws))

    def _pairs(self, step: int) -> tuple[Tensor, Tensor, vgae.Shares]:
        drawn = [sampler(step) for sampler in self._samplers]
        kinds = [[pairs.linked for pairs in drawn], [pairs.apart for pairs in drawn]]
        starts = self._stack.starts
        stacked = [
            np.concatenate([pairs + s for pairs, s in zip(kind, starts, strict=False)], axis=1)
            for kind in kinds
        ]
        counts = [np.array([pairs.shape[1] for pairs in kind]) for kind in kinds]
        of_linked, of_apart = (
            self._tensor(np.repeat(1.0 / np.maximum(count, 1), count)) for count in counts
        )
        linked, apart = (torch.from_numpy(pairs) for pairs in stacked)
        return linked, apart, vgae.Shares(of_linked, of_apart, self._node_shares)

    def _tensor(self, values: NDArray[np.floating]) -> Tensor:
        return torch.from_numpy(values).to(self._stack.plan.dtype)


def _real_edges(edge_index: NDArray[np.int64], own: int) -> NDArray[np.int64]:
    return edge_index[:, (edge_index < own).all(axis=0)]
