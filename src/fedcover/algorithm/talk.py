"""A conformal talk (:mod:`fedcover.conformal.protocol`) as a conversation with the parties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover.algorithm.checks import Alike
from fedcover.algorithm.requests import Ask, Check, Conversation, Replies, Sum, accepted, once
from fedcover.conformal.protocol import Client, Message, Server

ROUNDS = 256  # more than any talk has
Found = tuple[NDArray[Any], frozenset[int]]
"""What a talk came to, and between whom."""


def agreed(
    part: str,
    verb: str,
    server: Callable[[frozenset[int]], Server[Any]],
    as_array: Callable[[Any], NDArray[Any]],
    present: frozenset[int],
    *,
    check: Check = accepted,
    begin: Callable[[Message], None] | None = None,
) -> Conversation[Found]:
    """What a talk came to, and between whom: its parties are the same in all its rounds.

    If one is lost on the way, the talk begins again without it. ``begin`` is told each query.
    """

    def ask() -> Conversation[dict[str, NDArray[Any]]]:
        there = present
        for attempt in range(len(present)):
            talk, replies = server(there), None
            try:
                for round_ in range(ROUNDS):
                    query = next(talk) if replies is None else talk.send(replies)
                    if begin is not None:
                        begin(query)
                    place = attempt * ROUNDS + round_
                    found: Replies = yield Ask(part, verb, query, place, to=there, check=check)
                    if there - found.keys():
                        there = frozenset(found)
                        break
                    replies = [found[party] for party in sorted(found)]
            except StopIteration as stop:
                return {"value": as_array(stop.value), "parties": np.array(sorted(there))}
        raise AssertionError("a carrier lets no round pass without a party")

    found = yield from once(part, ask())
    return found["value"], frozenset(found["parties"].tolist())


def added_up(
    part: str,
    verb: str,
    server: Server[Any],
    as_array: Callable[[Any], NDArray[Any]],
    alike: tuple[Client[Any], Any],
) -> Conversation[NDArray[Any]]:
    """What a talk came to whose replies are only ever added up, whoever is there in a round.

    ``alike`` is a party's function, and what one without any nodes holds: an honest reply has the
    names, types and shapes that it would send.
    """

    def ask() -> Conversation[dict[str, NDArray[Any]]]:
        check = Alike(*alike)
        replies: Sequence[Message] | None = None
        try:
            for round_ in range(ROUNDS):
                query = next(server) if replies is None else server.send(replies)
                check.begin(query)
                total: Message = yield Sum(part, verb, query, round_, check=check)
                replies = [total]
        except StopIteration as stop:
            return {"value": as_array(stop.value)}
        raise AssertionError("no talk has so many rounds")

    return (yield from once(part, ask()))["value"]
