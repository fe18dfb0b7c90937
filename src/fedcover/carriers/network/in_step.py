"""Conversations side by side: all questions that are open at one time travel in one order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from fedcover.algorithm.requests import (
    Ask,
    Conversation,
    Finish,
    Keep,
    Parallel,
    Recall,
    Result,
    Tell,
    Train,
)

Question = tuple[int, Ask | Train]
"""A repetition's seed, and what it asks."""

Steps = Generator[list[Question], list[Any], Result]
"""A conversation that asks all its open questions at once, and is sent what came of each."""

AtOnce = Callable[[int, Tell | Finish | Recall | Keep], Any]
"""Answers what needs no message."""


def in_step(seed: int, talk: Conversation[Result], at_once: AtOnce) -> Steps[Result]:
    """One repetition's conversation; its parallel talks go on together."""
    sent: Any = None
    while True:
        try:
            request = talk.send(sent)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        if isinstance(request, Parallel):
            talks = {name: in_step(seed, one, at_once) for name, one in request.talks.items()}
            sent = yield from together(talks)
        elif isinstance(request, Ask | Train):
            (sent,) = yield [(seed, request)]
        else:
            sent = at_once(seed, request)


def together(talks: Mapping[Any, Steps[Result]]) -> Steps[dict[Any, Result]]:
    """Several conversations, until the last has ended; what each came to."""
    results: dict[Any, Result] = {}
    answers: dict[Any, Any] = dict.fromkeys(talks)
    while answers:
        asking: dict[Any, list[Question]] = {}
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
