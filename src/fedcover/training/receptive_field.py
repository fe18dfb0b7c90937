"""What a set of output nodes depends on, two hops wide: forward pass and hand-written gradient.

On top of it, the gradients of two losses: of labels, and of links.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.models import vgae
from fedcover.training.dropout import Dropout
from fedcover.training.layout import Layout, TwoWay, distinct
from fedcover.training.plan import Index
from fedcover.training.stack import Parameters, Stack


class Field:
    """The model at ``nodes`` (ascending numbers in the stack); nothing else is computed.

    ``scale`` multiplies the hidden layer on its way to the second.
    """

    gradient = False

    def __init__(self, stack: Stack, nodes: Index, scale: float = 1.0) -> None:
        self.y = torch.from_numpy(stack.y[nodes])
        self._client = stack.client_of_node[nodes]
        self._layout = Layout(np.bincount(self._client, minlength=len(stack.clients)))
        self._places = torch.from_numpy(self._layout.places(self._client))
        self._width = stack.operators * stack.plan.hidden
        self._classes = stack.plan.classes

        parts = [p[nodes].tocoo() for p in stack.propagation]
        hidden_nodes, hidden = distinct(np.concatenate([p.col for p in parts]), len(stack.y))
        self._hidden = stack.first.at(stack, hidden_nodes, self.gradient)
        self._hidden_nodes, place = hidden_nodes, self._places.numpy()
        row = [place[p.row] * stack.operators + i for i, p in enumerate(parts)]
        pairs = (np.concatenate(row), self._hidden.places[hidden])
        value = np.concatenate([p.data for p in parts]) * scale
        shape = (self._layout.rows * stack.operators, self._hidden.rows)
        matrix = sp.csr_array((value, pairs), shape=shape)
        self._p = TwoWay(matrix, stack.plan.dtype, self.gradient)
        self._prior: Tensor | None = None
        if (prior := stack.prior(nodes)) is not None:
            self._prior = prior.new_zeros(self._layout.rows, self._classes)
            self._prior[self._places] = prior

    def logits(self, p: Parameters) -> Tensor:
        """Nodes × classes, without dropout."""
        hidden = self._hidden.forward(p.first, p.first_bias).relu_()
        return self._second_layer(hidden, p)[1][self._places]

    def _second_layer(self, hidden: Tensor, p: Parameters) -> tuple[Tensor, Tensor]:
        """The propagated hidden rows and the logits, both padded."""
        mixed = self._p.forward(hidden).view(self._layout.rows, self._width)
        logits = mixed.new_empty(self._layout.rows, self._classes)
        for block in self._layout.blocks:
            bias, weights = p.second_bias[block.clients], p.second[block.clients]
            torch.baddbmm(bias.unsqueeze(1), block.batch(mixed), weights, out=block.batch(logits))
        if self._prior is not None:
            logits += self._prior
        return mixed, logits


class Pass(NamedTuple):
    """What a forward pass leaves for the way back; all rows padded."""

    hidden: Tensor
    mixed: Tensor
    logits: Tensor


class GradientField(Field):
    """A field whose outputs can be differentiated with respect to the weights.

    Dropout's factor 1/(1 − rate) is folded into the second propagation.
    """

    gradient = True

    def __init__(self, stack: Stack, nodes: Index) -> None:
        plan = stack.plan
        super().__init__(stack, nodes, scale=1.0 / (1.0 - plan.dropout))
        self._dropout: Dropout | None = None
        if plan.dropout > 0:
            owner = stack.client_of_node[self._hidden_nodes]
            local = self._hidden_nodes - stack.starts[owner]
            key = np.zeros((3, self._hidden.rows), dtype=np.int64)
            key[:, self._hidden.places] = stack.seed_of[owner], stack.number_of[owner], local
            self._dropout = Dropout(*key, units=plan.hidden, rate=plan.dropout)

    def forward(self, p: Parameters, step: int) -> Pass:
        """The model with dropout; ``step`` numbers its masks."""
        hidden = self._hidden.forward(p.first, p.first_bias).relu_()
        if self._dropout is not None:
            self._dropout.apply_(hidden, step)
        return Pass(hidden, *self._second_layer(hidden, p))

    def backward(self, p: Parameters, done: Pass, error: Tensor) -> list[Tensor]:
        """The weights' gradients in their order; ``error`` is that of the padded logits."""
        back = torch.empty_like(done.mixed)
        second, second_bias = torch.empty_like(p.second), torch.empty_like(p.second_bias)
        for block in self._layout.blocks:
            of, batch = block.clients, block.batch(error)
            torch.bmm(block.batch(done.mixed).transpose(1, 2), batch, out=second[of])
            torch.sum(batch, dim=1, out=second_bias[of])
            torch.bmm(batch, p.second[of].transpose(1, 2), out=block.batch(back))
        arriving = self._p.backward(back.view(-1, done.hidden.shape[1]))
        # A dropped or inactive unit is 0 in ``hidden``, and nothing flows back through it.
        arriving = torch.ops.aten.threshold_backward(arriving, done.hidden, 0.0)
        first, first_bias = self._hidden.backward(arriving)
        return [first, first_bias, second, second_bias]

    def outputs(self, done: Pass) -> Tensor:
        """The logits of the nodes, in their order."""
        return done.logits[self._places]

    def gradients_of(self, p: Parameters, done: Pass, gradient: Tensor) -> list[Tensor]:
        """As :meth:`backward`, given the gradient of :meth:`outputs`."""
        error = torch.zeros_like(done.logits)
        error[self._places] = gradient
        return self.backward(p, done, error)


class TrainingField(GradientField):
    """A field with the gradient of each client's mean cross-entropy over its nodes here."""

    def __init__(self, stack: Stack, nodes: Index) -> None:
        super().__init__(stack, nodes)
        plan, rows = stack.plan, self._layout.rows
        share = torch.from_numpy(1.0 / np.bincount(self._client)[self._client]).to(plan.dtype)
        # Padding has weight 0, so that its error is 0.
        self._weight = torch.zeros(rows, 1, dtype=plan.dtype)
        self._weight[self._places, 0] = share
        self._target = torch.zeros(rows, plan.classes, dtype=plan.dtype)
        self._target[self._places, self.y] = share

    def gradients(self, p: Parameters, step: int) -> list[Tensor]:
        """In the parameters' order; ``step`` numbers the dropout masks."""
        done = self.forward(p, step)
        error = torch.softmax(done.logits, dim=1).mul_(self._weight).sub_(self._target)
        return self.backward(p, done, error)


class LinkField(GradientField):
    """All nodes, with the gradient of each client's VGAE loss."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, np.arange(len(stack.y)))
        self._stack, self._dtype = stack, stack.plan.dtype
        self._keyed = list(zip(stack.clients, stack.keys, strict=True))
        self._samplers = [vgae.PairSampler(c.real_edges, c.own, *key) for c, key in self._keyed]
        share = (1.0 / np.diff(stack.starts))[stack.client_of_node]
        self._node_shares = torch.from_numpy(share).to(self._dtype)

    def gradients(self, p: Parameters, step: int) -> list[Tensor]:
        """In the parameters' order; ``step`` numbers the draws."""
        done, latent = self.forward(p, step), self._classes // 2
        draws = [vgae.noise(client.nodes, latent, *key, step) for client, key in self._keyed]
        noise = torch.from_numpy(np.concatenate(draws)).to(self._dtype)
        with torch.enable_grad():
            outputs = self.outputs(done).requires_grad_()
            loss = vgae.link_loss(outputs, noise, *self._pairs(step))
            (gradient,) = torch.autograd.grad(loss, outputs)
        return self.gradients_of(p, done, gradient)

    def _pairs(self, step: int) -> tuple[Tensor, Tensor, vgae.Shares]:
        found = []
        for kind in zip(*(sampler(step) for sampler in self._samplers), strict=True):
            own = [pairs + s for pairs, s in zip(kind, self._stack.starts, strict=False)]
            count = np.array([pairs.shape[1] for pairs in kind])
            share = torch.from_numpy(np.repeat(1.0 / np.maximum(count, 1), count))
            found.append((torch.from_numpy(np.concatenate(own, axis=1)), share.to(self._dtype)))
        (linked, of_linked), (apart, of_apart) = found
        return linked, apart, vgae.Shares(of_linked, of_apart, self._node_shares)
