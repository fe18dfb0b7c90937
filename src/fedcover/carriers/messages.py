"""Requests as the messages that parties get, and what their replies come to.

Carriers that really send messages share this; the stacked one does the same sums in one program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import fixed_point
from fedcover.algorithm.calibrate import Census
from fedcover.algorithm.requests import Ask, Finish, Replies, Round, Sum, Train
from fedcover.carriers.averages import AVERAGES
from fedcover.conformal.protocol import Message
from fedcover.models import Weights
from fedcover.training.plan import Plan
from fedcover.training.program import fraction_bits, mean_loss
from fedcover.training.weights import WEIGHTS, arrays_of

TRAIN, ALONE, START = "train", "train alone", "start alone"


def verb_of(request: Ask | Train) -> str:
    """What a party is asked to do."""
    if isinstance(request, Train):
        return TRAIN if request.plan.average else ALONE if request.fit else START
    return request.verb


def query_of(request: Ask | Train, party: int, census: Census) -> Message:
    """What a party is sent."""
    if isinstance(request, Ask):
        return {**request.query, **request.own.get(party, {})}
    sent: dict[str, NDArray[Any]] = {
        "fit": np.array(request.fit),
        "total": np.array(total_of(request.plan, census)),
    }
    if not request.plan.average:
        keep = -1 if request.keep is None else request.keep
        sent |= {"keep": np.array(keep), "rounds": np.array(request.rounds)}
    if request.model is not None and request.plan.average:  # a party knows its own model's start
        sent |= arrays_of(request.model.weights)
    return sent


def total_of(plan: Plan, census: Census) -> int:
    """What a share is measured by: all training nodes, or the parties if all count alike."""
    return len(census.parties) if plan.task == "links" else sum(census.of("train").values())


def told_by(request: Finish) -> Message:
    """What parties are told when a training is over."""
    if request.model is not None:
        return arrays_of(request.model.weights)
    if request.plan.average:
        return {}
    return {"keep": np.array(-1 if request.keep is None else request.keep)}


def result_of(
    request: Ask | Train,
    replies: Replies,
    census: Census,
    average: str = "mean",
    initial: Weights | None = None,
) -> Replies | Message | Round:
    """What is sent back to the conversation. ``initial`` are the weights that a round without any
    began with."""
    if isinstance(request, Train):
        return _round(request, replies, census, average, initial)
    if isinstance(request, Sum):
        return fixed_point.add(replies.values())
    return replies


def _round(
    request: Train, replies: Replies, census: Census, average: str, initial: Weights | None
) -> Round:
    losses = _losses(replies, average)
    if not (request.fit and request.plan.average):
        return Round(losses)
    before = request.model.weights if request.model is not None else initial
    assert before is not None
    change = _change(request.plan, replies, census, average)
    tensors = zip(before.tensors(), (change[name] for name in WEIGHTS), strict=True)
    return Round(losses, Weights(*(old + add for old, add in tensors)))


def _losses(replies: Replies, average: str) -> tuple[float, ...]:
    """Mean losses over the validation nodes of the parties that answered.

    Where averages must be robust, it is the median of the parties' own means: one party's losses
    cannot decide which round is kept.
    """
    entries = len(next(iter(replies.values()))["loss"])
    found = []
    for entry in range(entries):
        own = [(int(r["loss"][entry]), int(r["count"][entry])) for r in replies.values()]
        if average == "mean":
            found.append(mean_loss(*map(sum, zip(*own, strict=True))))
        else:
            means = [mean_loss(*one) for one in own if one[1]]
            found.append(float(np.median(means)) if means else float("nan"))
    return tuple(found)


def _change(plan: Plan, replies: Replies, census: Census, average: str) -> Mapping[str, Any]:
    """What is added to the weights: the parties' changes, weighed by their training nodes."""
    import torch

    total, trained = total_of(plan, census), census.of("train")
    share = {p: (1 if plan.task == "links" else trained[p]) / total for p in replies}
    scale = 2.0 ** -fraction_bits(plan.dtype)
    change = {}
    for name in WEIGHTS:
        if average == "mean":
            summed = sum(replies[party][name] for party in sorted(replies))
            mean: NDArray[np.floating] = np.asarray(summed) * scale
            if len(replies) < len(census.parties):
                mean /= sum(share.values())
        else:
            own = [replies[p][name] * (scale / share[p]) for p in sorted(replies) if share[p]]
            mean = AVERAGES[average](own)
        change[name] = torch.from_numpy(np.asarray(mean)).to(plan.dtype)
    return change
