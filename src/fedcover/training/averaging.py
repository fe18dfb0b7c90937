r"""FedAvg (McMahan et al., 2017): :math:`\theta = \sum_k \frac{n_k}{n} \theta_k` over the stack.

``n_k`` is the number of client k's training nodes, or 1 for the task ``links``. Where a client has
no weight row for a feature (it never occurs there), its row is the one it was sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedcover.models import Weights
from fedcover.training.first_layer import SparseFirst
from fedcover.training.sparse import Bag
from fedcover.training.stack import Parameters, Stack


class Averaging:
    """Moves weights between the federations' shared models and the stacked clients."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._federation_of = torch.from_numpy(stack.federation_of)
        alike = stack.plan.task == "links"
        trained = np.array([1 if alike else len(c.train) for c in stack.clients], dtype=np.float64)
        totals = np.bincount(stack.federation_of, trained, minlength=stack.federations)
        share = trained / totals[stack.federation_of]
        self._shares = torch.zeros(stack.federations, len(stack.clients), dtype=stack.plan.dtype)
        self._shares[self._federation_of, torch.arange(len(share))] = torch.from_numpy(share).to(
            stack.plan.dtype
        )

        first = stack.first
        self._row_of: Tensor | None = None
        if isinstance(first, SparseFirst):
            owner = stack.federation_of[first.client_of_row]
            row = owner * stack.features + first.feature_of_row
            rows = stack.federations * stack.features
            value = share[first.client_of_row]
            matrix = sp.csr_array((value, (row, np.arange(len(row)))), shape=(rows, len(row)))
            self._row_of = torch.from_numpy(row)
            self._sum = Bag(matrix, stack.plan.dtype)
            kept = 1.0 - np.bincount(row, value, minlength=rows)
            self._kept = torch.from_numpy(np.clip(kept, 0, 1)).to(stack.plan.dtype)[:, None]

    def shared(self, weights: Sequence[Weights]) -> Parameters:
        """One model for each federation, laid out for the stack."""
        firsts = [w.first for w in weights]
        if self._row_of is None:
            first = torch.stack(firsts)
        else:
            first = torch.cat([_by_feature(f, self._stack.operators) for f in firsts])
        return Parameters(
            first,
            torch.stack([w.first_bias for w in weights]),
            torch.stack([w.second for w in weights]),
            torch.stack([w.second_bias for w in weights]),
        )

    def broadcast(self, shared: Parameters, into: Parameters | None = None) -> Parameters:
        """What every client starts a round with, in a new place or in that of ``into``."""
        first = self._federation_of if self._row_of is None else self._row_of
        rows = (first, *[self._federation_of] * 3)
        places = into.tensors() if into else [None] * len(rows)
        return Parameters(
            *(
                torch.index_select(tensor, 0, row, out=place)
                for tensor, row, place in zip(shared.tensors(), rows, places, strict=True)
            )
        )

    def average(self, local: Parameters, shared: Parameters) -> Parameters:
        """The clients' weighted mean; ``shared`` is what they were sent."""

        def mean(stacked: Tensor) -> Tensor:
            return (self._shares @ stacked.flatten(1)).view(-1, *stacked.shape[1:])

        if self._row_of is None:
            first = mean(local.first)
        else:
            first = self._sum(local.first).addcmul_(shared.first, self._kept)
        return Parameters(
            first, mean(local.first_bias), mean(local.second), mean(local.second_bias)
        )

    def federation_of_rows(self, shared: bool) -> list[Tensor]:
        """For each tensor of the parameters, the federation that its rows belong to."""
        stack = self._stack
        others = torch.arange(stack.federations) if shared else self._federation_of
        first = others
        if isinstance(stack.first, SparseFirst):
            by_client = self._federation_of[torch.from_numpy(stack.first.client_of_row)]
            first = others.repeat_interleave(stack.features) if shared else by_client
        return [first, others, others, others]

    def weights(self, shared: Parameters, federation: int) -> Weights:
        """One federation's shared model."""
        if self._row_of is None:
            first = shared.first[federation]
        else:
            rows = shared.first.view(self._stack.federations, self._stack.features, -1)
            first = _by_operator(rows[federation], self._stack.operators)
        tensors = (t[federation] for t in shared.tensors()[1:])
        return Weights(first.clone(), *(t.clone() for t in tensors))

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
        return Weights(first, *(t[client].clone() for t in local.tensors()[1:]))


def _by_feature(first: Tensor, operators: int) -> Tensor:
    """(o·F, hidden) → (F, o·hidden)."""
    parts = first.view(operators, -1, first.shape[1])
    return parts.transpose(0, 1).reshape(parts.shape[1], -1)


def _by_operator(first: Tensor, operators: int) -> Tensor:
    """(F, o·hidden) → (o·F, hidden)."""
    parts = first.view(first.shape[0], operators, -1)
    return parts.transpose(0, 1).reshape(-1, parts.shape[2])
