"""FedAvg with its best round: weights go down, a sum of changes and validation losses come up.

Parties measure the loss of the weights that they receive before they train on them, so a round
costs one message each way; the last average takes one more. Models that stay at their parties are
trained by :func:`alone`, whose best round is common to all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcover.algorithm.requests import (
    Conversation,
    Finish,
    Keep,
    Model,
    Parallel,
    Recall,
    Round,
    Tell,
    Train,
)
from fedcover.config import Config, Recipe
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError
from fedcover.models.gnn import arrays_of, weights_of
from fedcover.plans import decay_part, plan_of
from fedcover.training.plan import Plan


@dataclass(frozen=True)
class Trained:
    """A training that is over.

    ``best`` is an index into ``losses``; with a given start, the first entry is that of the start.
    ``model`` is None if every party has its own.
    """

    losses: tuple[float, ...]
    best: int
    rounds: int
    model: Model | None = None


@dataclass(frozen=True)
class Progress:
    """A training after so many rounds: what a coordinator that was killed must know to go on.

    ``best`` is the entry of the history with the lowest loss so far. Without validation nodes
    losses are NaN, and the last entry counts as the best.
    """

    plan: Plan
    start: Model | None = None  # if one is given, the first loss is its
    round: int = 0
    done: bool = False
    history: tuple[float, ...] = ()
    best: int = -1
    model: Model | None = None  # the last average, not judged yet
    kept: Model | None = None  # of the best round

    def to_message(self) -> Message:
        """As arrays; :func:`_begun` reads them."""
        names = "round", "done", "history", "best"
        found = {name: np.array(getattr(self, name)) for name in names}
        for prefix, model in (("model.", self.model), ("kept.", self.kept)):
            found |= {} if model is None else arrays_of(model.weights, prefix)
        return found

    def judged(self, *losses: float) -> "Progress":
        """With losses of the rounds after; the last average is kept if it is the best so far."""
        now = self
        for loss in losses:
            if not now.ended:
                lowest = now.history[now.best] if now.best >= 0 else np.inf
                best = len(now.history) if loss < lowest or np.isnan(loss) else now.best
                now = replace(now, history=(*now.history, loss), best=best)
        improved = now.best == len(now.history) - 1
        return replace(now, kept=now.model if improved else now.kept)

    @property
    def ended(self) -> bool:
        """Whether there was no better entry for too long."""
        waited, patience = len(self.history) - 1 - self.best, self.plan.patience
        return patience is not None and bool(self.history) and waited >= patience

    @property
    def keep(self) -> int | None:
        """After how many rounds the parties' own models were best."""
        return None if self.best < 0 else self.best + (self.start is None)

    def trained(self) -> Trained:
        """Refuses a training that never had a loss."""
        if self.best < 0:
            raise DataError(
                "Training diverged: the validation loss is not a number in any round; "
                "scale the features or lower the learning rate."
            )
        rounds = len(self.history) - (self.start is not None)
        return Trained(self.history, self.best, rounds, self.kept)


def _begun(part: str, plan: Plan, start: Model | None) -> Conversation[Progress]:
    """Where an earlier try was, or the beginning."""
    before: Message | None = yield Recall(part)
    if before is None:
        return Progress(plan, start, model=start if plan.average else None)
    return Progress(
        plan,
        start,
        int(before["round"]),
        bool(before["done"]),
        tuple(before["history"].tolist()),
        int(before["best"]),
        weights_of(before, "model."),
        weights_of(before, "kept."),
    )


def fedavg(
    part: str, plan: Plan, start: Model | None = None, *, keep: bool = True
) -> Conversation[Trained]:
    """Train one model over all parties; it and its best round. ``keep``: whether they get it."""
    now = yield from _begun(part, plan, start)
    while not now.done:
        fit = now.round < plan.rounds
        reply: Round = yield Train(part, plan, now.round, now.model, fit=fit)
        if now.round > 0 or start is not None or not fit:
            now = now.judged(reply.losses[0])
        done = now.ended or not fit
        now = replace(now, round=now.round + fit, model=reply.model, done=done)
        yield Keep(part, now.to_message)
    trained = now.trained()
    yield Finish(part, plan, now.kept if keep else None)
    return trained


def screened(plans: Mapping[str, Plan]) -> Conversation[dict[str, float]]:
    """The lowest validation loss of each of these trainings, by part; nobody keeps their models.

    Without validation nodes, or where training diverged, it is infinite.
    """
    talks = {part: fedavg(part, plan, keep=False) for part, plan in plans.items()}
    trained: dict[str, Trained] = yield Parallel(talks)
    losses = {part: one.losses[one.best] for part, one in trained.items()}
    return {part: np.inf if np.isnan(loss) else float(loss) for part, loss in losses.items()}


def choose_decay(recipe: Recipe, config: Config, classes: int) -> Conversation[dict[str, Any]]:
    """Choose the weight decay of one owner's model by short trainings; without validation nodes the
    first."""
    decays = config.central_decay
    chosen, found = decays[0], {}
    if len(decays) > 1:
        parts = {decay: decay_part(recipe, decay) for decay in decays}
        plans = {part: plan_of(config, classes, part) for part in parts.values()}
        losses = yield from screened(plans)
        chosen = min(decays, key=lambda decay: losses[parts[decay]])
        found["grid"] = [
            {"weight_decay": decay, "valid_loss": rounded(losses[part])}
            for decay, part in parts.items()
        ]
    yield Tell(f"{recipe.shared}/decay", {"weight_decay": np.array(chosen)})
    return {"weight_decay": chosen, **found}


def rounded(loss: float) -> float | None:
    """As ``run.json`` has it."""
    return round(loss, 5) if np.isfinite(loss) else None


def alone(
    part: str, plan: Plan, start: Model | None = None, *, stride: int = 1
) -> Conversation[Trained]:
    """Train a model at every party by itself; the pooled loss chooses one round for all.

    ``stride`` rounds are asked for at once: more take fewer messages, and more of a party's memory.
    """
    now = yield from _begun(part, plan, start)
    if start is not None and not now.history:
        reply: Round = yield Train(part, plan, 0, start, fit=False)
        now = now.judged(*reply.losses)
    while now.round < plan.rounds and not now.ended:
        rounds = min(stride, plan.rounds - now.round)
        reply = yield Train(part, plan, now.round, start, keep=now.keep, rounds=rounds)
        now = replace(now.judged(*reply.losses), round=now.round + rounds)
        yield Keep(part, now.to_message)
    trained = now.trained()
    yield Finish(part, plan, keep=now.keep)
    return trained
