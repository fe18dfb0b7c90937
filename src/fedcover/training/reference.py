"""One party's training with PyG's own layers and autograd: written to be obviously right, not fast.

It has the interface of :class:`~fedcover.training.program.Program` for a federation of one party:
``party.engine = Reference`` makes a loopback run the oracle for the other carriers.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.nn import VGAE

from fedcover import fixed_point
from fedcover.models import Weights, initial_weights, to_module
from fedcover.models.gnn import from_module, load_weights
from fedcover.models.vgae import MAX_LOGSTD, PairSampler, noise
from fedcover.training.plan import Federation, Plan, batches, initialiser, inputs, log_prior
from fedcover.training.program import as_integers, encode_loss, fraction_bits


class Reference:
    """The only party of the only federation, with a module and an optimiser."""

    def __init__(
        self,
        federations: Sequence[Federation],
        plan: Plan,
        start: Sequence[Weights] | None = None,
        total: int | None = None,
    ) -> None:
        """As :class:`~fedcover.training.program.Program`."""
        (federation,) = federations
        (party,) = federation.clients
        self.plan, self._key = plan, (federation.seed, federation.first)
        links, x = plan.task == "links", inputs(party, plan)
        x = x.toarray() if sp.issparse(x) else x
        prior = np.zeros(plan.classes) if links else log_prior(party, plan)
        self._x, self._edge_weight, self._prior = (
            torch.from_numpy(array).to(plan.dtype) for array in (x, party.edge_weight, prior)
        )
        self._edge_index, self._y, self._train, self._valid = map(
            torch.from_numpy, (party.edge_index, party.y, np.sort(party.train), party.valid)
        )
        own = 1 if links else len(party.train)
        self._share = own / (own if total is None else total)
        size = (x.shape[1], plan.hidden, plan.classes)
        drawn = start[0] if start else initial_weights(plan.model, *size, initialiser(self._key[0]))
        self._module = to_module(plan.model, drawn.to(plan.dtype), plan.dropout)
        self._sent = self._weights()
        self._adam = torch.optim.Adam(
            self._module.parameters(), lr=plan.lr, weight_decay=plan.weight_decay
        )
        self._pairs = PairSampler(party.real_edges, party.own, *self._key)

    def receive(self, weights: Sequence[Weights]) -> None:
        """Go on from these shared weights."""
        load_weights(self.plan.model, self._module, weights[0].to(self.plan.dtype))

    @torch.no_grad()
    def losses(self) -> tuple[fixed_point.Integers, NDArray[np.int64]]:
        """The sum over validation nodes, in fixed point, and their number."""
        self._module.eval()
        of = self._valid
        loss = cross_entropy(self._outputs()[of], self._y[of], reduction="none").double().sum()
        return encode_loss(loss.numpy()[None]), np.array([len(self._valid)])

    def fit(self, round_: int) -> None:
        """All local steps of one round."""
        self._module.train()
        self._sent = self._weights()
        before = [p.detach().clone() for p in self._module.parameters()]
        steps = self._link_losses if self.plan.task == "links" else self._label_losses
        for loss in steps(round_):
            if self.plan.prox and self.plan.average:  # FedProx (Li et al., 2020)
                pairs = zip(self._module.parameters(), before, strict=True)
                loss = loss + self.plan.prox / 2 * sum(((p - b) ** 2).sum() for p, b in pairs)
            self._adam.zero_grad()
            torch.autograd.backward(loss)
            self._adam.step()

    def change(self) -> dict[str, fixed_point.Integers]:
        """What the party sends: its share of the sum of changes, as integers."""
        scale = self._share * 2 ** fraction_bits(self.plan.dtype)
        pairs = zip(self._weights(), self._sent, strict=True)
        return as_integers(Weights(*(scale * (now - before) for now, before in pairs)))

    def own_weights(self, *, kept: bool = False) -> list[list[Weights]]:
        """The party's model as it is now; it keeps no other."""
        assert not kept
        return [[self._weights()]]

    def _weights(self) -> Weights:
        return from_module(self.plan.model, self._module)

    def _outputs(self) -> Tensor:
        if self.plan.model == "sage" and (self._edge_weight != 1).any():
            outputs = _weighted_sage(self._module, self._x, self._edge_index, self._edge_weight)
        else:
            weight = self._edge_weight if self.plan.model == "gcn" else None
            outputs = self._module(self._x, self._edge_index, edge_weight=weight)
        return outputs + self._prior

    def _label_losses(self, round_: int) -> Iterator[Tensor]:
        for positions in batches(len(self._train), self.plan, *self._key, round_):
            nodes = self._train[torch.from_numpy(positions)]
            yield cross_entropy(self._outputs()[nodes], self._y[nodes])

    def _link_losses(self, round_: int) -> Iterator[Tensor]:
        model = VGAE(nn.Identity())  # it would draw its encoder's weights anew
        for epoch in range(self.plan.local_epochs):
            step = (round_ << 20) + epoch
            mu, logstd = self._outputs().chunk(2, dim=1)
            epsilon = torch.from_numpy(noise(len(mu), mu.shape[1], *self._key, step)).to(mu.dtype)
            z = mu + epsilon * logstd.clamp(max=MAX_LOGSTD).exp()
            linked, apart = (torch.from_numpy(pairs) for pairs in self._pairs(step))
            yield model.recon_loss(z, linked, apart) + model.kl_loss(mu, logstd) / len(mu)


def _weighted_sage(module: nn.Module, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
    """PyG's GraphSAGE knows no edge weights: its own linear maps over a weighted mean."""
    source, target = edge_index
    for last, conv in zip((False, True), module.convs, strict=True):  # type: ignore[arg-type]
        total = x.new_zeros(len(x)).index_add(0, target, weight)
        summed = torch.zeros_like(x).index_add(0, target, weight[:, None] * x[source])
        mean = summed / torch.where(total > 0, total, 1.0)[:, None]
        x = conv.lin_l(mean) + conv.lin_r(x)
        if not last:
            x = module.dropout(x.relu())  # type: ignore[operator]
    return x
