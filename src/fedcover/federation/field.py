"""What a set of output nodes depends on, two hops wide: forward pass and hand-written gradient."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.federation.dropout import Dropout
from fedcover.federation.layout import Index, Layout
from fedcover.federation.sparse import TwoWay
from fedcover.federation.stack import Parameters, Stack


class Field:
    """The model at ``nodes`` (ascending numbers in the stack).

    With ``gradient`` it can also do :meth:`step`: the mean cross-entropy over each client's nodes
    here, and its gradient. Dropout's factor 1/(1 − rate) is folded into the second propagation.
    """

    def __init__(self, stack: Stack, nodes: Index, gradient: bool = False) -> None:
        plan = stack.plan
        parts = [p[nodes].tocoo() for p in stack.propagation]
        hidden_nodes = np.unique(np.concatenate([p.col for p in parts]))
        self._hidden = stack.first.at(hidden_nodes, gradient)
        client = stack.client_of_node[nodes]
        counts = np.bincount(client, minlength=len(stack.clients))
        self._layout = Layout(counts)
        self.places = torch.from_numpy(self._layout.places(client))
        place = self.places.numpy()
        count = stack.operators
        dropping = gradient and plan.dropout > 0
        scale = 1 / (1 - plan.dropout) if dropping else 1.0
        matrix = sp.csr_matrix(
            (
                np.concatenate([p.data for p in parts]) * scale,
                (
                    np.concatenate([place[p.row] * count + i for i, p in enumerate(parts)]),
                    self._hidden.places[
                        np.searchsorted(hidden_nodes, np.concatenate([p.col for p in parts]))
                    ],
                ),
            ),
            shape=(self._layout.rows * count, self._hidden.rows),
        )
        self._p = TwoWay(matrix, plan.dtype, gradient)
        self._width = count * plan.hidden
        self._classes = plan.classes
        self.y = torch.from_numpy(stack.y[nodes])
        if gradient:
            weight = torch.zeros(self._layout.rows, 1, dtype=plan.dtype)
            weight[self.places, 0] = torch.from_numpy(1.0 / counts[client]).to(plan.dtype)
            target = torch.zeros(self._layout.rows, plan.classes, dtype=plan.dtype)
            target[self.places, self.y] = weight[self.places, 0]
            self._weight, self._target = weight, target
        self._dropout: Dropout | None = None
        if dropping:
            rows = np.zeros((3, self._hidden.rows), dtype=np.int64)
            owner = stack.client_of_node[hidden_nodes]
            rows[:, self._hidden.places] = (
                stack.seed_of[owner],
                stack.number_of[owner],
                hidden_nodes - stack.starts[owner],
            )
            self._dropout = Dropout(*rows, units=plan.hidden, rate=plan.dropout)

    def logits(self, p: Parameters) -> Tensor:
        """Nodes × classes, without dropout."""
        hidden = self._hidden.forward(p.first, p.first_bias).relu_()
        return self._second(hidden, p)[1][self.places]

    def _second(self, hidden: Tensor, p: Parameters) -> tuple[Tensor, Tensor]:
        mixed = self._p.forward(hidden).view(self._layout.rows, self._width)
        logits = mixed.new_empty(self._layout.rows, self._classes)
        for block in self._layout.blocks:
            of = block.clients
            torch.baddbmm(
                p.second_bias[of].unsqueeze(1),
                block.batch(mixed),
                p.second[of],
                out=block.batch(logits),
            )
        return mixed, logits

    def step(self, p: Parameters, counter: int) -> list[Tensor]:
        """The gradients of all clients' mean cross-entropy here, in the parameters' order."""
        hidden = self._hidden.forward(p.first, p.first_bias).relu_()
        if self._dropout is not None:
            hidden.masked_fill_(self._dropout.dropped(counter), 0.0)
        mixed, logits = self._second(hidden, p)
        error = torch.softmax(logits, dim=1).mul_(self._weight).sub_(self._target)

        back = torch.empty_like(mixed)
        second, second_bias = [], []
        for block in self._layout.blocks:
            batch = block.batch(error)
            second.append(torch.bmm(block.batch(mixed).transpose(1, 2), batch))
            second_bias.append(batch.sum(dim=1))
            torch.bmm(batch, p.second[block.clients].transpose(1, 2), out=block.batch(back))
        gradient = self._p.backward(back.view(-1, hidden.shape[1]))
        # Where a unit was dropped or not active it is 0, and nothing flows back through it.
        gradient = torch.ops.aten.threshold_backward(gradient, hidden, 0.0)
        first, first_bias = self._hidden.backward(gradient)
        return [first, first_bias, torch.cat(second), torch.cat(second_bias)]
