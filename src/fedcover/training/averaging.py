"""Weights between the shared models and the stacked parties: out to all, and back as one sum.

A party's share is that of its training nodes, or 1/K for the task ``links``. Where a party has no
weight row for a feature (it never occurs there), its change is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.models import Weights
from fedcover.training.first_layer import SparseFirst
from fedcover.training.layout import Bag
from fedcover.training.stack import Parameters, Stack


class Averaging:
    """Moves weights between the federations' shared models and the stacked parties."""

    def __init__(self, stack: Stack, bits: int, total: int | None = None) -> None:
        """``total`` stands for the federation's training nodes where not all parties are here."""
        self._stack = stack
        self._federation_of = torch.from_numpy(stack.federation_of)
        dtype = stack.plan.dtype
        alike = stack.plan.task == "links"
        trained = np.array([1 if alike else len(c.train) for c in stack.clients], dtype=np.float64)
        totals = np.bincount(stack.federation_of, trained, minlength=stack.federations)
        whole = totals[stack.federation_of] if total is None else np.full(len(trained), total)
        self._unit = 2.0**-bits
        self._scale = torch.from_numpy(trained / whole * 2.0**bits).to(dtype)
        self._sum = torch.zeros(stack.federations, len(stack.clients), dtype=dtype)
        self._sum[self._federation_of, torch.arange(len(trained))] = self._unit

        first = stack.first
        self._row_of: Tensor | None = None
        if isinstance(first, SparseFirst):
            owner = stack.federation_of[first.client_of_row]
            row = owner * stack.features + first.feature_of_row
            shape = (stack.federations * stack.features, len(row))
            matrix = sp.csr_array(
                (np.full(len(row), self._unit), (row, np.arange(len(row)))), shape=shape
            )
            self._row_of = torch.from_numpy(row)
            self._sum_rows = Bag(matrix, dtype)
            self._scale_rows = self._scale[torch.from_numpy(first.client_of_row)]

    def shared(self, weights: Sequence[Weights]) -> Parameters:
        """One model for each federation, laid out for the stack, in the plan's precision."""
        firsts, *others = zip(*(w.to(self._stack.plan.dtype) for w in weights), strict=True)
        if self._row_of is None:
            first = torch.stack(firsts)
        else:
            first = torch.cat([_by_feature(f, self._stack.operators) for f in firsts])
        return Parameters(first, *map(torch.stack, others))

    def broadcast(self, shared: Parameters, into: Parameters | None = None) -> Parameters:
        """What every party starts a round with, in a new place or in that of ``into``."""
        first = self._federation_of if self._row_of is None else self._row_of
        rows = (first, *[self._federation_of] * 3)
        moved = zip(shared, rows, into or [None] * len(rows), strict=True)
        return Parameters(
            *(torch.index_select(tensor, 0, row, out=place) for tensor, row, place in moved)
        )

    def average(self, local: Parameters, sent: Parameters, shared: Parameters) -> Parameters:
        """The shared models with the sum of their parties' changes; ``sent`` is overwritten."""
        terms = self._terms(local, sent)
        sums = [(self._sum @ term.flatten(1)).view(-1, *term.shape[1:]) for term in terms[1:]]
        if self._row_of is None:
            first = (self._sum @ terms.first.flatten(1)).view(-1, *terms.first.shape[1:])
        else:
            first = self._sum_rows(terms.first)
        return Parameters(
            *(change.add_(before) for change, before in zip((first, *sums), shared, strict=True))
        )

    def change(self, local: Parameters, sent: Parameters, client: int) -> Weights:
        """One party's term of the sum, in units of 2^-bits; ``sent`` is overwritten."""
        terms, stack = self._terms(local, sent), self._stack
        first = terms.first
        if self._row_of is not None:
            first = first.new_zeros(stack.federations * stack.features, first.shape[-1])
        return self.client_weights(terms, terms._replace(first=first), client)

    def _terms(self, local: Parameters, sent: Parameters) -> Parameters:
        """round(share · (local − sent) · 2^bits), in the place of ``sent``."""
        scales = [self._scale] * 4
        if self._row_of is not None:
            scales[0] = self._scale_rows
        for now, before, scale in zip(local, sent, scales, strict=True):
            torch.sub(now, before, out=before)
            before.mul_(scale.view(-1, *[1] * (before.dim() - 1))).round_()
        return sent

    def federation_of_rows(self) -> list[Tensor]:
        """For each tensor of the parties' parameters, the federation that its rows belong to."""
        first = own = self._federation_of
        if isinstance(self._stack.first, SparseFirst):
            first = own[torch.from_numpy(self._stack.first.client_of_row)]
        return [first, own, own, own]

    def weights(self, shared: Parameters, federation: int) -> Weights:
        """One federation's shared model."""
        if self._row_of is None:
            first = shared.first[federation]
        else:
            rows = shared.first.view(self._stack.federations, self._stack.features, -1)
            first = _by_operator(rows[federation], self._stack.operators)
        return Weights(first.clone(), *(tensor[federation].clone() for tensor in shared[1:]))

    def client_weights(self, local: Parameters, start: Parameters, client: int) -> Weights:
        """One stacked client's own model; ``start`` holds the rows that it never touched."""
        stack = self._stack
        if isinstance(stack.first, SparseFirst):
            rows = start.first.view(stack.federations, stack.features, -1)
            first = rows[stack.federation_of[client]].clone()
            mine = stack.first.rows_of(client, client + 1)
            first[torch.from_numpy(stack.first.feature_of_row[mine])] = local.first[mine]
            first = _by_operator(first, stack.operators)
        else:
            first = local.first[client].clone()
        return Weights(first, *(tensor[client].clone() for tensor in local[1:]))


def _by_feature(first: Tensor, operators: int) -> Tensor:
    """(o·F, hidden) → (F, o·hidden)."""
    parts = first.view(operators, -1, first.shape[1])
    return parts.transpose(0, 1).reshape(parts.shape[1], -1)


def _by_operator(first: Tensor, operators: int) -> Tensor:
    """(F, o·hidden) → (o·F, hidden)."""
    parts = first.view(first.shape[0], operators, -1)
    return parts.transpose(0, 1).reshape(-1, parts.shape[2])
