"""FedAvg with its best round: weights go down, a sum of changes and validation losses come up.

Parties measure the loss of the weights that they receive before they train on them, so a round
costs one message each way; the last average takes one more. Models that stay at their parties are
trained by :func:`alone`, whose best round is common to all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover.algorithm.requests import Conversation, Finish, Keep, Model, Recall, Round, Train
from fedcover.conformal.protocol import Message
from fedcover.training.plan import Plan, diverged
from fedcover.training.weights import arrays_of, weights_of


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

    def checked(self) -> Best:
        """Refuse a training that never had a loss."""
        if self.place < 0:
            raise diverged()
        return self


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

    round: int
    best: Best
    model: Model | None = None  # the last average, not judged yet
    kept: Model | None = None  # of the best round
    done: bool = False

    def to_message(self) -> Message:
        """As arrays."""
        return {
            "round": np.array(self.round),
            "done": np.array(self.done),
            "history": np.array(self.best.history, dtype=np.float64),
            "best": np.array(self.best.place),
            **_named("model.", self.model),
            **_named("kept.", self.kept),
        }

    @classmethod
    def from_message(cls, arrays: Message, patience: int | None) -> _Progress:
        """From what :meth:`to_message` made."""
        best = Best(patience, tuple(arrays["history"].tolist()), int(arrays["best"]))
        return cls(
            int(arrays["round"]),
            best,
            weights_of(arrays, "model."),
            weights_of(arrays, "kept."),
            bool(arrays["done"]),
        )

    def judged(self, loss: float) -> _Progress:
        """With the loss of the last average: it is kept if it is the best so far."""
        best = self.best.judged(loss)
        return replace(self, best=best, kept=self.model if best.improved else self.kept)


def fedavg(
    part: str, plan: Plan, start: Model | None = None, *, keep: bool = True
) -> Conversation[Trained]:
    """Train one model over all parties; it and its best round. ``keep``: whether they get it."""
    found: Message | None = yield Recall(part)
    now = _Progress(0, Best(plan.patience), start)
    if found is not None:
        now = _Progress.from_message(found, plan.patience)
    while not now.done and now.round < plan.rounds:
        reply: Round = yield Train(part, plan, now.round, now.model)
        if now.round > 0 or start is not None:
            now = now.judged(reply.losses[0])
        now = replace(now, round=now.round + 1, model=reply.model, done=now.best.ended)
        yield Keep(part, now)
    if not now.done:
        reply = yield Train(part, plan, now.round, now.model, fit=False)
        now = replace(now.judged(reply.losses[0]), done=True)
        yield Keep(part, now)
    best = now.best.checked()
    yield Finish(part, plan, now.kept if keep else None)
    rounds = len(best.history) - (start is not None)
    return Trained(best.history, best.place, rounds, now.kept)


@dataclass(frozen=True)
class _Alone:
    """As :class:`_Progress`, where the parties keep the models."""

    round: int
    best: Best

    def to_message(self) -> Message:
        return {
            "round": np.array(self.round),
            "history": np.array(self.best.history, dtype=np.float64),
            "best": np.array(self.best.place),
        }

    @classmethod
    def from_message(cls, arrays: Message, patience: int | None) -> _Alone:
        best = Best(patience, tuple(arrays["history"].tolist()), int(arrays["best"]))
        return cls(int(arrays["round"]), best)

    def after(self, losses: tuple[float, ...], rounds: int) -> _Alone:
        best = self.best
        for loss in losses:
            best = best if best.ended else best.judged(loss)
        return _Alone(self.round + rounds, best)

    def keep(self, started: bool) -> int | None:
        """After how many rounds the models were best; where they started with a given model, the
        first loss is that of the start."""
        return None if self.best.place < 0 else self.best.place + (not started)


def alone(
    part: str, plan: Plan, start: Model | None = None, *, stride: int = 1
) -> Conversation[Trained]:
    """Train a model at every party by itself; the pooled loss chooses one round for all.

    ``stride`` rounds are asked for at once: more take fewer messages, and more of a party's memory.
    """
    found: Message | None = yield Recall(part)
    now = _Alone(0, Best(plan.patience))
    if found is not None:
        now = _Alone.from_message(found, plan.patience)
    elif start is not None:
        reply: Round = yield Train(part, plan, 0, start, fit=False)
        now = now.after(reply.losses, 0)
    while now.round < plan.rounds and not now.best.ended:
        rounds = min(stride, plan.rounds - now.round)
        keep = now.keep(start is not None)
        reply = yield Train(part, plan, now.round, start, keep=keep, rounds=rounds)
        now = now.after(reply.losses, rounds)
        yield Keep(part, now)
    best = now.best.checked()
    yield Finish(part, plan, keep=now.keep(start is not None))
    return Trained(best.history, best.place, len(best.history) - (start is not None))


def _named(prefix: str, model: Model | None) -> dict[str, NDArray[Any]]:
    return {} if model is None else arrays_of(model.weights, prefix)
