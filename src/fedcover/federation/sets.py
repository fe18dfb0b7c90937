r"""The task ``sets``: cross-entropy, and how many labels conformal sets would hold.

CF-GNN (Huang, Jin, Candès & Leskovec, NeurIPS 2023) trains a correction of a model's outputs for
small prediction sets. At every step a client's training nodes are halved at random. With the
scores :math:`S_y = 1 - p_y` of LAC, one half gives a quantile :math:`q` of its true labels'
scores, the other a smooth count of the labels that stay below it:

.. math:: \frac1m \sum_v \sum_y \sigma\!\Big(\frac{q - S_y(v)}{\tau}\Big)

The quantile interpolates between two scores, so the gradient flows through it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcover.federation.engine import Plan
from fedcover.federation.field import GradientField
from fedcover.federation.layout import Index
from fedcover.federation.stack import Parameters, Stack


@dataclass(frozen=True)
class SetSize:
    """How the size of sets enters the loss."""

    weight: float = 1.0  # beside the cross-entropy's 1
    alpha: float = 0.1  # the reference level: one number, whatever levels are asked for later
    tau: float = 0.1  # how smooth the count is


@dataclass(frozen=True)
class SetsPlan(Plan):
    """A plan for the task ``sets``. All of a client's training nodes enter every step."""

    task: Literal["labels", "links", "sets"] = "sets"
    size: SetSize = SetSize()


def size_of(plan: Plan) -> SetSize:
    """How the size of sets enters this plan's loss."""
    return plan.size if isinstance(plan, SetsPlan) else SetSize()


class Halves(NamedTuple):
    """Positions among a client's training nodes in ascending order."""

    calibrating: Index
    predicting: Index


def halves(count: int, seed: int, client: int, step: int) -> Halves:
    """Who calibrates and who predicts in this step; the odd node predicts.

    It depends on nothing but the arguments, so that all engines agree.
    """
    order = np.random.default_rng([seed, client, step, 0x5E75]).permutation(count)
    return Halves(np.sort(order[: count // 2]), np.sort(order[count // 2 :]))


class SetField(GradientField):
    """All training nodes, with the gradient of each client's cross-entropy and set size.

    A client with a single node has nothing to halve: its loss is the cross-entropy alone.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, stack.nodes("train"))
        self._size, self._stack = size_of(stack.plan), stack
        counts = np.bincount(self._client, minlength=len(stack.clients))
        self._share = self._tensor(1.0 / counts[self._client])
        self._first = np.cumsum(counts) - counts
        self._halved = np.flatnonzero(counts >= 2)
        self._counts = counts[self._halved]
        calibrating = self._counts // 2
        place = (calibrating - 1) * (1.0 - self._size.alpha)
        below = np.floor(place).astype(np.int64)
        self._below = torch.from_numpy(below)[:, None]
        self._above = torch.from_numpy(np.minimum(below + 1, calibrating - 1))[:, None]
        self._between = self._tensor(place - below)[:, None]
        self._table_row = np.repeat(np.arange(len(calibrating)), calibrating)
        starts = np.cumsum(calibrating) - calibrating
        self._table_column = np.arange(len(self._table_row)) - starts[self._table_row]
        self._table_width = int(calibrating.max(initial=0))
        predicting = self._counts - calibrating
        self._predictor = np.repeat(np.arange(len(predicting)), predicting)
        self._predictor_share = self._tensor(1.0 / predicting[self._predictor])

    def gradients(self, p: Parameters, step: int) -> list[Tensor]:
        """In the parameters' order; ``step`` numbers the halves and the dropout masks."""
        done = self.forward(p, step)
        with torch.enable_grad():
            outputs = self.outputs(done).requires_grad_()
            (gradient,) = torch.autograd.grad(self._loss(outputs, step), outputs)
        return self.gradients_of(p, done, gradient)

    def _loss(self, outputs: Tensor, step: int) -> Tensor:
        """Summed over the clients, each of which has weights of its own."""
        log_probs = torch.log_softmax(outputs, dim=1)
        true = log_probs.gather(1, self.y[:, None])[:, 0]
        loss = -(true * self._share).sum()
        if not len(self._halved):
            return loss
        calibrating, predicting = self._halves(step)
        quantile = self._quantiles(1.0 - true[calibrating].exp())[self._predictor]
        scores = 1.0 - log_probs[predicting].exp()
        kept = torch.sigmoid((quantile - scores) / self._size.tau).sum(dim=1)
        return loss + self._size.weight * (kept * self._predictor_share).sum()

    def _halves(self, step: int) -> tuple[Tensor, Tensor]:
        """The rows of all calibrating and of all predicting nodes, client after client."""
        stack, drawn = self._stack, []
        for client, count in zip(self._halved.tolist(), self._counts.tolist(), strict=True):
            seed, number = int(stack.seed_of[client]), int(stack.number_of[client])
            own = halves(count, seed, number, step)
            drawn.append([half + self._first[client] for half in own])
        calibrating, predicting = (np.concatenate(half) for half in zip(*drawn, strict=True))
        return torch.from_numpy(calibrating), torch.from_numpy(predicting)

    def _quantiles(self, scores: Tensor) -> Tensor:
        """Each client's interpolated quantile, as a column; ``scores`` are those of all."""
        table = scores.new_full((len(self._halved), self._table_width), torch.inf)
        table[self._table_row, self._table_column] = scores
        ordered = table.sort(dim=1).values
        below, above = ordered.gather(1, self._below), ordered.gather(1, self._above)
        return below + (above - below) * self._between

    def _tensor(self, values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values).to(self._stack.plan.dtype)
