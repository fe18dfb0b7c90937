"""Weights between the shared models and the stacked parties: out to all, and back as one sum.

A party's share is that of its training nodes, or 1/K for the task ``links``. Where a party has no
weight row for a feature (it never occurs there), its change is 0.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.models import Weights
from fedcover.training.layout import Bag
from fedcover.training.stack import Parameters, SparseFirst, Stack


class Averaging:
    """Moves weights between the federations' shared models and the stacked parties.

    It does not hold the stack: a shared model that is kept would keep all graphs in memory.
    """

    def __init__(self, stack: Stack, bits: int, total: int | None = None) -> None:
        """``total`` stands for the federation's training nodes where not all parties are here."""
        self._dtype, self._operators = stack.plan.dtype, stack.operators
        self._sparse = isinstance(stack.first, SparseFirst)
        self._table = (stack.federations, stack.features, -1)  # sparse features' shared rows
        alike, federation_of = stack.plan.task == "links", stack.federation_of
        trained = np.array([1 if alike else len(c.train) for c in stack.clients], dtype=np.float64)
        whole = np.bincount(federation_of, trained)[federation_of] if total is None else total
        scale = torch.from_numpy(trained / whole * 2.0**bits).to(self._dtype)
        owner = torch.from_numpy(federation_of)
        matrix = torch.zeros(stack.federations, len(trained), dtype=self._dtype)
        matrix[owner, torch.arange(len(trained))] = 2.0**-bits

        # By tensor: the federation and the scale of its rows, which of the shared rows they come
        # from, and how they are added up.
        client = torch.from_numpy(stack.first.client_of_row)
        self.federation_of_rows = [owner[client], owner, owner, owner]
        self._scales = [scale[client], scale, scale, scale]
        self._source = [*self.federation_of_rows]
        self._sums: list[Callable[[Tensor], Tensor]] = [partial(torch.mm, matrix)] * 4
        if isinstance(stack.first, SparseFirst):
            self._feature = torch.from_numpy(stack.first.feature_of_row)
            self._rows = [stack.first_rows(k, k + 1) for k in range(len(trained))]
            row = self._source[0] = owner[client] * stack.features + self._feature
            units = np.full(len(row), 2.0**-bits)
            shape = (stack.federations * stack.features, len(row))
            adjacency = sp.csr_array((units, (row.numpy(), np.arange(len(row)))), shape=shape)
            self._sums[0] = Bag(adjacency, self._dtype)

    def shared(self, weights: Sequence[Weights]) -> Parameters:
        """One model for each federation, laid out for the stack, in the plan's precision."""
        firsts, *others = zip(*(w.to(self._dtype) for w in weights), strict=True)
        if self._sparse:
            first = torch.cat([_by_feature(f, self._operators) for f in firsts])
        else:
            first = torch.stack(firsts)
        return Parameters(first, *map(torch.stack, others))

    def broadcast(self, shared: Parameters, into: Parameters | None = None) -> Parameters:
        """What every party starts a round with, in a new place or in that of ``into``."""
        moved = zip(shared, self._source, into or [None] * 4, strict=True)
        return Parameters(
            *(torch.index_select(tensor, 0, row, out=place) for tensor, row, place in moved)
        )

    def average(self, local: Parameters, sent: Parameters, shared: Parameters) -> Parameters:
        """The shared models with the sum of their parties' changes; ``sent`` is overwritten."""
        summed = zip(self._sums, self._terms(local, sent), shared, strict=True)
        return Parameters(
            *(add(term.flatten(1)).view_as(before).add_(before) for add, term, before in summed)
        )

    def change(self, local: Parameters, sent: Parameters, client: int) -> Weights:
        """One party's term of the sum, in units of 2^-bits; ``sent`` is overwritten."""
        return self.client_weights(self._terms(local, sent), None, client)

    def _terms(self, local: Parameters, sent: Parameters) -> Parameters:
        """round(share · (local − sent) · 2^bits), in the place of ``sent``."""
        for now, before, scale in zip(local, sent, self._scales, strict=True):
            torch.sub(now, before, out=before)
            before.mul_(scale.view(-1, *[1] * (before.dim() - 1))).round_()
        return sent

    def weights(self, shared: Parameters, federation: int) -> Weights:
        """One federation's shared model."""
        first = shared.first.view(self._table) if self._sparse else shared.first
        return self._model(first[federation].clone(), shared, federation)

    def client_weights(self, local: Parameters, start: Parameters | None, client: int) -> Weights:
        """One stacked client's own model; ``start`` has the rows it never touched, None for 0."""
        if not self._sparse:
            return self._model(local.first[client].clone(), local, client)
        if start is None:
            first = local.first.new_zeros(self._table[1], local.first.shape[1])
        else:
            first = start.first.view(self._table)[self.federation_of_rows[1][client]].clone()
        first[self._feature[self._rows[client]]] = local.first[self._rows[client]]
        return self._model(first, local, client)

    def _model(self, first: Tensor, others: Parameters, place: int) -> Weights:
        if self._sparse:
            first = _by_operator(first, self._operators)
        return Weights(first, *(tensor[place].clone() for tensor in others[1:]))


def _by_feature(first: Tensor, operators: int) -> Tensor:
    """(o·F, hidden) → (F, o·hidden)."""
    parts = first.view(operators, -1, first.shape[1])
    return parts.transpose(0, 1).reshape(parts.shape[1], -1)


def _by_operator(first: Tensor, operators: int) -> Tensor:
    """(F, o·hidden) → (o·F, hidden)."""
    parts = first.view(first.shape[0], operators, -1)
    return parts.transpose(0, 1).reshape(-1, parts.shape[2])
