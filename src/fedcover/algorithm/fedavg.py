"""FedAvg with its best round: weights go down, a sum of changes and validation losses come up.

Parties measure the loss of the weights that they receive before they train on them, so a round
costs one message each way; the last average takes one more. Models that stay at their parties are
trained by :func:`alone`, whose best round is common to all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedcover.algorithm.requests import (
    Conversation,
    Finish,
    Found,
    Keep,
    Model,
    Recall,
    Round,
    Train,
)
from fedcover.conformal.protocol import Message
from fedcover.models.gnn import arrays_of, weights_of
from fedcover.training.plan import Plan, diverged


@dataclass(frozen=True)
class Best:
    """Which entry of the history has the lowest loss so far.

    Without validation nodes losses are NaN, and the last entry counts as the best.
    """

    patience: int | None
    history: tuple[float, ...] = ()
    place: int = -1

    def judged(self, loss: float) -> Best:
        """With one more entry."""
        history = (*self.history, loss)
        lowest = self.history[self.place] if self.place >= 0 else np.inf
        better = loss < lowest or np.isnan(loss)
        return replace(self, history=history, place=len(history) - 1 if better else self.place)

    @property
    def improved(self) -> bool:
        """Whether the last entry is the best."""
        return self.place == len(self.history) - 1

    @property
    def ended(self) -> bool:
        """Whether there was no better entry for too long."""
        waited = len(self.history) - 1 - self.place
        return self.patience is not None and bool(self.history) and waited >= self.patience


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
class _Progress:
    """A training after so many rounds: what a coordinator that was killed must know to go on."""

    best: Best
    started: bool  # with a given model, whose loss is then the first
    round: int = 0
    model: Model | None = None  # the last average, not judged yet
    kept: Model | None = None  # of the best round
    done: bool = False

    def to_message(self) -> Message:
        found: Found = {
            "round": np.array(self.round),
            "done": np.array(self.done),
            "history": np.array(self.best.history, dtype=np.float64),
            "best": np.array(self.best.place),
        }
        for prefix, model in (("model.", self.model), ("kept.", self.kept)):
            found |= {} if model is None else arrays_of(model.weights, prefix)
        return found

    def judged(self, *losses: float) -> _Progress:
        """With losses of the rounds after; the last average is kept if it is the best so far."""
        best = self.best
        for loss in losses:
            best = best if best.ended else best.judged(loss)
        return replace(self, best=best, kept=self.model if best.improved else self.kept)

    @property
    def keep(self) -> int | None:
        """After how many rounds the parties' own models were best."""
        return None if self.best.place < 0 else self.best.place + (not self.started)

    def ended(self) -> Trained:
        """Refuses a training that never had a loss."""
        if self.best.place < 0:
            raise diverged()
        rounds = len(self.best.history) - self.started
        return Trained(self.best.history, self.best.place, rounds, self.kept)


def _begun(part: str, plan: Plan, start: Model | None) -> Conversation[_Progress]:
    """Where an earlier try was, or the beginning."""
    before: Message | None = yield Recall(part)
    if before is None:
        model = start if plan.average else None
        return _Progress(Best(plan.patience), start is not None, model=model)
    return _Progress(
        Best(plan.patience, tuple(before["history"].tolist()), int(before["best"])),
        start is not None,
        int(before["round"]),
        weights_of(before, "model."),
        weights_of(before, "kept."),
        bool(before["done"]),
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
        done = now.best.ended or not fit
        now = replace(now, round=now.round + fit, model=reply.model, done=done)
        yield Keep(part, now.to_message)
    trained = now.ended()
    yield Finish(part, plan, now.kept if keep else None)
    return trained


def alone(
    part: str, plan: Plan, start: Model | None = None, *, stride: int = 1
) -> Conversation[Trained]:
    """Train a model at every party by itself; the pooled loss chooses one round for all.

    ``stride`` rounds are asked for at once: more take fewer messages, and more of a party's memory.
    """
    now = yield from _begun(part, plan, start)
    if start is not None and not now.best.history:
        reply: Round = yield Train(part, plan, 0, start, fit=False)
        now = now.judged(*reply.losses)
    while now.round < plan.rounds and not now.best.ended:
        rounds = min(stride, plan.rounds - now.round)
        reply = yield Train(part, plan, now.round, start, keep=now.keep, rounds=rounds)
        now = replace(now.judged(*reply.losses), round=now.round + rounds)
        yield Keep(part, now.to_message)
    trained = now.ended()
    yield Finish(part, plan, keep=now.keep)
    return trained
