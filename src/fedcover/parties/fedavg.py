r"""FedAvg as the coordinator sees it: weights go down, weights and validation losses come up.

A site measures the loss of the weights that it receives before it trains on them, so a round costs
one message each way; the loss of the last average takes one more. Which round is kept is decided
as :mod:`fedcover.federation.program` does. Several models may be trained side by side.

A round is made of the sites that answered: the average weighs them by their training nodes, the
loss is pooled over their validation nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message
from fedcover.models import Weights
from fedcover.models.gnn import operators
from fedcover.parties.checkpoint import Checkpoint
from fedcover.parties.checks import Arrays, both
from fedcover.parties.messages import Check, Conversation, Replies, Request
from fedcover.parties.robust import AVERAGES
from fedcover.training.plan import Plan, diverged

NAMES = tuple(f.name for f in fields(Weights))
Stacked = dict[str, NDArray[np.floating]]  # by tensor: (models, …)


def stacked(weights: Sequence[Weights]) -> Stacked:
    """Several models' weights, tensor by tensor."""
    return {name: np.stack([getattr(one, name).numpy() for one in weights]) for name in NAMES}


def unstacked(message: Message) -> list[Weights]:
    """The models that :func:`stacked` put together."""
    tensors = [torch.from_numpy(np.array(message[name])) for name in NAMES]
    return [Weights(*parts) for parts in zip(*tensors, strict=True)]


@dataclass(frozen=True)
class Census:
    """How many nodes each site has for training and for validation, by its number."""

    train: Mapping[int, int]
    valid: Mapping[int, int]


@dataclass(frozen=True)
class Averaged:
    """What came of a training: each model at its best round, by validation loss."""

    weights: Stacked
    best_round: NDArray[np.int64]  # by model; -1: none yet
    history: NDArray[np.float64]  # (rounds, models): pooled validation losses


@dataclass(frozen=True)
class _Progress:
    """A training after so many rounds: what a checkpoint has to hold."""

    round: int
    weights: Stacked  # the last average; nothing before the first
    kept: Stacked  # of the best rounds
    best_round: NDArray[np.int64]
    best_loss: NDArray[np.float64]
    history: NDArray[np.float64]
    done: bool = False  # whether the last average has been judged, too

    def to_message(self) -> dict[str, NDArray[Any]]:
        """As arrays."""
        return {
            "round": np.array(self.round),
            "done": np.array(self.done),
            "best_round": self.best_round,
            "best_loss": self.best_loss,
            "history": self.history,
            **{f"weights.{name}": value for name, value in self.weights.items()},
            **{f"kept.{name}": value for name, value in self.kept.items()},
        }

    @classmethod
    def from_message(cls, arrays: Message) -> _Progress:
        """From what :meth:`to_message` made."""

        def part(prefix: str) -> Stacked:
            return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

        return cls(
            int(arrays["round"]),
            part("weights."),
            part("kept."),
            arrays["best_round"],
            arrays["best_loss"],
            arrays["history"],
            bool(arrays["done"]),
        )

    def judged(
        self, losses: NDArray[np.float64], validated: bool, patience: int | None
    ) -> _Progress:
        """With the last average's losses: each model is kept where it is the best so far."""
        better = ((losses < self.best_loss) | (not validated)) & ~self._tired(patience)
        kept = {
            name: np.where(better.reshape(-1, *[1] * (value.ndim - 1)), value, self.kept[name])
            if self.kept
            else value
            for name, value in self.weights.items()
        }
        return replace(
            self,
            kept=kept,
            best_round=np.where(better, len(self.history), self.best_round),
            best_loss=np.where(better, losses, self.best_loss),
            history=np.concatenate([self.history, losses[None]]),
        )

    def ended(self, patience: int | None) -> bool:
        """Whether no model has had a better round for so long."""
        return bool(self._tired(patience).all())

    def _tired(self, patience: int | None) -> NDArray[np.bool_]:
        """Which models have waited too long for a better round; those stay as they are."""
        waited = len(self.history) - 1 - self.best_round
        return waited >= (np.inf if patience is None or not len(self.history) else patience)


def fedavg(
    phase: str,
    plan: Plan,
    features: int,
    census: Census,
    checkpoint: Checkpoint,
    *,
    models: int = 1,
    average: str = "mean",
) -> Conversation[Averaged]:
    """Train ``models`` models over all sites and return each at its best round."""
    validated = plan.task == "labels" and any(census.valid.values())
    check, most = _expected(plan, features, models)
    at = checkpoint.read(phase)
    now = _Progress.from_message(at) if at else _beginning(models)
    while not now.done and now.round < plan.rounds:
        replies = yield Request(phase, "fit", now.round, now.weights, check, most)
        if now.round > 0:
            losses = pooled(replies, census, models, average)
            now = now.judged(losses, validated, plan.patience)
            if now.ended(plan.patience):
                now = replace(now, done=True)
                break
        now = replace(now, round=now.round + 1, weights=_mean(replies, plan, census, average))
        checkpoint.write(phase, now.to_message())
    if not now.done:
        losses = np.full(models, np.nan)
        if validated:
            check = Arrays({"loss": (np.float64, (models,))})
            replies = yield Request(phase, "loss", now.round, now.weights, check, check.nbytes)
            losses = pooled(replies, census, models, average)
        now = replace(now.judged(losses, validated, plan.patience), done=True)
    if (now.best_round < 0).any():
        raise diverged()
    checkpoint.write(phase, now.to_message())
    return Averaged(now.kept, now.best_round, now.history)


def _beginning(models: int) -> _Progress:
    """Before the first round: the first weights follow from the seed, and are not sent."""
    nothing = np.full(models, -1)
    return _Progress(0, {}, {}, nothing, np.full(models, np.inf), np.empty((0, models)))


def _expected(plan: Plan, features: int, models: int) -> tuple[Check, int]:
    count = operators(plan.model)
    shapes = {
        "first": (models, count * features, plan.hidden),
        "first_bias": (models, plan.hidden),
        "second": (models, count * plan.hidden, plan.classes),
        "second_bias": (models, plan.classes),
    }
    arrays = Arrays(
        {name: (np.float32, shape) for name, shape in shapes.items()}
        | {"loss": (np.float64, (models,))}
    )
    return both(arrays, _no_negative_loss), arrays.nbytes


def _no_negative_loss(_site: int, reply: Message) -> str:
    return "has a negative loss" if (reply["loss"] < 0).any() else ""


def pooled(
    replies: Replies, census: Census, losses: int, average: str = "mean"
) -> NDArray[np.float64]:
    """The mean losses over the validation nodes of the sites that answered; NaN without any.

    Where averages must be robust, it is the median of the sites' own means: one site's losses
    cannot decide which round is kept.
    """
    own = [r["loss"] / census.valid[site] for site, r in replies.items() if census.valid[site]]
    if average != "mean" and own:
        return np.asarray(np.median(own, axis=0))
    count = sum(census.valid[site] for site in replies)
    total = sum((reply["loss"] for reply in replies.values()), np.zeros(losses))
    return total / count if count else np.full(losses, np.nan)


def _mean(replies: Replies, plan: Plan, census: Census, average: str) -> Stacked:
    sites = sorted(replies)
    shares = [1 if plan.task == "links" else census.train[site] for site in sites]
    return {
        name: AVERAGES[average]([replies[site][name] for site in sites], shares) for name in NAMES
    }
