"""A trained correction of the outputs in the manner of CF-GNN, federated.

CF-GNN (Huang, Jin, Candès & Leskovec, NeurIPS 2023) lets a second GNN look at the base model's
probabilities on the graph and trains it for small prediction sets. Here it gives what is *added*
to the base model's logits, and it is averaged over the clients as the base model is:

* A part of each client's training nodes is held out from the base model, which would be too sure
  of itself there, and trains the correction alone. Calibration and test labels are never seen, so
  the guarantee holds as before (docs/guarantee.md).
* The correction starts as nothing, and is dropped if no round improves the pooled validation loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedcover.conformal import softmax
from fedcover.federation import Client, Engine, Federation, Plan, Trained
from fedcover.federation.engine import OnRound, initialiser
from fedcover.federation.sets import SetSize, SetsPlan
from fedcover.models import Weights, initial_weights
from fedcover.personal.settings import PersonalSettings

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Parted:
    """A federation whose base model does not see the nodes that are held out."""

    base: Federation
    held: list[Index]  # by client; none where a client has too few

    @property
    def empty(self) -> bool:
        """Whether no client holds anything out, so that there is nothing to train with."""
        return not any(len(nodes) for nodes in self.held)


def hold_out(federation: Federation, share: float) -> Parted:
    """Part every client's training nodes at random; ``share`` of them, rounded down, are held out.

    The base model keeps one at least.
    """
    clients, held = [], []
    for number, client in enumerate(federation.clients):
        rng = np.random.default_rng([federation.seed, number, 0xC0FF])
        order = rng.permutation(np.sort(client.train))
        # A third of three is one, whatever floating point makes of it.
        count = max(min(int(len(order) * share + 1e-9), len(order) - 1), 0)
        held.append(np.sort(order[:count]))
        clients.append(replace(client, train=np.sort(order[count:])))
    return Parted(replace(federation, clients=clients), held)


def correction_plan(plan: Plan, settings: PersonalSettings) -> SetsPlan:
    """How the correction of a base model with this plan is trained.

    The base model's prior is in its logits already.
    """
    return SetsPlan(
        model=plan.model,
        classes=plan.classes,
        hidden=settings.correction_hidden,
        dropout=plan.dropout,
        lr=plan.lr,
        rounds=settings.correction_rounds,
        local_epochs=plan.local_epochs,
        dtype=plan.dtype,
        average=plan.average,
        size=SetSize(settings.correction_weight, settings.correction_alpha),
    )


def correction_clients(parted: Parted, base: Trained) -> Federation:
    """What the correction is trained on: probabilities as features, logits as an offset."""
    clients = [
        replace(on_outputs(client, logits), train=held)
        for client, held, logits in zip(parted.base.clients, parted.held, base.logits, strict=True)
    ]
    return replace(parted.base, clients=clients)


def on_outputs(client: Client, logits: NDArray[np.floating]) -> Client:
    """The client as its correction sees it."""
    return replace(client, x=softmax(logits), offset=logits)


def no_correction(plan: Plan, seed: int) -> Weights:
    """The start: its outputs are zero, and its second layer's gradients are not."""
    drawn = initial_weights(plan.model, plan.classes, plan.hidden, plan.classes, initialiser(seed))
    return replace(drawn, second=torch.zeros_like(drawn.second))


def train_correction(
    engine: Engine,
    parted: Sequence[Parted],
    base: Sequence[Trained],
    plan: Plan,
    on_round: OnRound | None = None,
) -> list[Trained]:
    """The corrected models of all federations; their logits are the corrected ones.

    ``best_round`` 0 means that the base model was kept. A federation that holds nothing out is
    not trained: its only round is the start.
    """
    starts = [no_correction(plan, one.base.seed) for one in parted]
    able = [number for number, one in enumerate(parted) if not one.empty]
    trained = (
        engine.train(
            [correction_clients(parted[number], base[number]) for number in able],
            plan,
            start=[starts[number] for number in able],
            on_round=on_round,
        )
        if able
        else []
    )
    found = dict(zip(able, trained, strict=True))
    return [
        found[number] if number in found else _kept(starts[number], model)
        for number, model in enumerate(base)
    ]


def _kept(start: Weights, base: Trained) -> Trained:
    loss = base.valid_loss[base.best_round : base.best_round + 1]
    return Trained([start] * len(base.logits), base.logits, loss, 0, 0, 0.0)
