r"""Requests as the messages that parties get, and what their replies come to.

Carriers that really send messages share this; the stacked one does the same sums in one program.

Weights are averaged by ``mean``, FedAvg's, a sum over parties, or by one that a few parties cannot
move: ``trimmed`` drops, for every single weight, the largest and the smallest 30 % of the parties'
values, and ``median`` takes the middle one (Yin et al., ICML 2018). Both count all parties alike,
since a hostile one would claim many nodes.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedcover import fixed_point
from fedcover.algorithm import requests
from fedcover.algorithm.requests import Ask, Census, Conversation, Question, Replies, Result, Train
from fedcover.conformal.protocol import Message
from fedcover.models import Weights, initial_weights
from fedcover.models.gnn import WEIGHTS, arrays_of, operators
from fedcover.training.plan import Plan, initialiser
from fedcover.training.program import fraction_bits, mean_loss

TRAIN, ALONE, START, FINISH = "train", "train alone", "start alone", "finish"
TRIMMED = 0.3  # share of the parties dropped at each end, at least one of three or more

Values = NDArray[np.floating]
Asked = tuple[int, Question]  # A repetition's seed, and what it asks
Steps = Generator[list[Asked], list[Any], Result]
"""A conversation that asks all its open questions at once, and is sent what came of each."""
AtOnce = Callable[[int, requests.Notice], Any]  # answers what needs no message


def lead(
    talks: Mapping[int, Conversation[Result]],
    at_once: AtOnce,
    ask: Callable[[list[Asked]], list[Any]],
) -> dict[int, Result]:
    """Lead all repetitions' conversations, by their seeds, to the end; what they came to."""
    steps = together({seed: in_step(seed, talk, at_once) for seed, talk in talks.items()})
    answers: Any = None
    try:
        while True:
            answers = ask(steps.send(answers))
    except StopIteration as stop:
        results: dict[int, Result] = stop.value
        return results


def in_step(seed: int, talk: Conversation[Result], at_once: AtOnce) -> Steps[Result]:
    """One repetition's conversation; its parallel talks go on together."""
    sent: Any = None
    while True:
        try:
            request = talk.send(sent)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        if isinstance(request, requests.Parallel):
            talks = {name: in_step(seed, one, at_once) for name, one in request.talks.items()}
            sent = yield from together(talks)
        elif isinstance(request, Question):
            (sent,) = yield [(seed, request)]
        else:
            sent = at_once(seed, request)


def together(talks: Mapping[Any, Steps[Result]]) -> Steps[dict[Any, Result]]:
    """Several conversations, until the last has ended; what each came to."""
    results: dict[Any, Result] = {}
    answers: dict[Any, Any] = dict.fromkeys(talks)
    while answers:
        asking: dict[Any, list[Asked]] = {}
        for name, sent in answers.items():
            try:
                asking[name] = talks[name].send(sent)
            except StopIteration as stop:
                results[name] = stop.value
        if not asking:
            break
        replies = iter((yield [question for open_ in asking.values() for question in open_]))
        answers = {name: [next(replies) for _ in open_] for name, open_ in asking.items()}
    return {name: results[name] for name in talks}


def verb_of(request: Question) -> str:
    """What a party is asked to do."""
    if isinstance(request, Train):
        return TRAIN if request.plan.average else ALONE if request.fit else START
    return request.verb


def queries_of(request: Question, census: Census) -> dict[int, Message]:
    """What each party that is asked is sent, by its number."""
    if isinstance(request, Ask):
        to = census.parties if request.to is None else request.to
        return {k: {**request.query, **request.own.get(k, {})} for k in census.counts if k in to}
    total = sum(_counted(request.plan, census).values())
    sent = {"fit": np.array(request.fit), "total": np.array(total)}
    if not request.plan.average:
        sent |= {"keep": _kept(request.keep), "rounds": np.array(request.rounds)}
    elif request.model is not None:  # a party knows its own model's start
        sent |= arrays_of(request.model.weights)
    return dict.fromkeys(census.counts, sent)


def told_by(request: requests.Finish) -> Message:
    """What parties are told when a training is over."""
    if request.model is not None:
        return arrays_of(request.model.weights)
    return {} if request.plan.average else {"keep": _kept(request.keep)}


def _kept(keep: int | None) -> NDArray[np.int64]:
    return np.array(-1 if keep is None else keep)


def _counted(plan: Plan, census: Census) -> dict[int, int]:
    """What parties weigh in an average: their training nodes, or 1 each if all count alike."""
    return dict.fromkeys(census.parties, 1) if plan.task == "links" else census.of("train")


def result_of(
    request: Question, replies: Replies, census: Census, average: str = "mean", seed: int = 0
) -> Replies | Message | requests.Round:
    """What is sent back to the conversation. The weights that a training begins with, if none are
    given, follow from the seed."""
    if isinstance(request, requests.Sum):
        return fixed_point.add(replies.values())
    if isinstance(request, Ask):
        return replies
    losses, plan = _losses(replies, average), request.plan
    if not (request.fit and plan.average):
        return requests.Round(losses)
    change = _change(plan, replies, census, average)
    if request.model is not None:
        before = request.model.weights
    else:
        size = (len(change[0]) // operators(plan.model), plan.hidden, plan.classes)
        before = initial_weights(plan.model, *size, initialiser(seed)).to(plan.dtype)
    return requests.Round(losses, Weights(*map(torch.add, before, change)))


def _losses(replies: Replies, average: str) -> tuple[float, ...]:
    """Mean losses over the validation nodes of the parties that answered.

    Where averages must be robust, it is the median of the parties' own means: one party's losses
    cannot decide which round is kept.
    """
    found = []
    for entry in range(len(next(iter(replies.values()))["loss"])):
        own = [(int(r["loss"][entry]), int(r["count"][entry])) for r in replies.values()]
        if average == "mean":
            found.append(mean_loss(*map(sum, zip(*own, strict=True))))
        else:
            means = [mean_loss(*one) for one in own if one[1]]
            found.append(float(np.median(means)) if means else float("nan"))
    return tuple(found)


def _change(plan: Plan, replies: Replies, census: Census, average: str) -> list[torch.Tensor]:
    """What is added to the weights: the parties' changes, weighed by their training nodes."""
    counted = _counted(plan, census)
    share = {party: counted[party] / sum(counted.values()) for party in sorted(replies)}
    scale = 2.0 ** -fraction_bits(plan.dtype)
    change = []
    for name in WEIGHTS:
        if average == "mean":
            mean: Values = np.asarray(sum(replies[party][name] for party in share)) * scale
            if len(replies) < len(census.parties):
                mean /= sum(share.values())
        else:
            own = [replies[p][name] * (scale / part) for p, part in share.items() if part]
            mean = AVERAGES[average](own)
        change.append(torch.from_numpy(np.asarray(mean)).to(plan.dtype))
    return change


def trimmed(values: Sequence[Values]) -> Values:
    """The mean of what is left of each weight without its extremes."""
    ordered = np.sort(np.stack(values), axis=0)
    cut = max(round(TRIMMED * len(values)), 1) if len(values) > 2 else 0
    return np.asarray(ordered[cut : len(values) - cut].mean(axis=0))


AVERAGES: dict[str, Callable[[Sequence[Values]], Values]] = {
    "trimmed": trimmed,
    "median": partial(np.median, axis=0),
}
