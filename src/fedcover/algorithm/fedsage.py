"""FedSage+ as the coordinator sees it: generators of neighbours, and what they learn together.

A round takes two messages each way. The parties send their generators and latent means; all get
all of them, and answer with gradients, which are added up (:mod:`fedcover.fixed_point`).
Every party gets the sum for its own generator with the next question.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedcover.algorithm import checks
from fedcover.algorithm.requests import (
    Ask,
    Census,
    Check,
    Conversation,
    Found,
    Keep,
    Recall,
    Replies,
    Sum,
)
from fedcover.config import NeighGenSettings
from fedcover.conformal.protocol import Message
from fedcover.plans import MEND, generator_shapes


def mend(settings: NeighGenSettings, features: int, census: Census) -> Conversation[None]:
    """Every party mends its graph with neighbours that it generates."""
    shapes = generator_shapes(settings, features)
    check, most = _generators(settings, features)
    others, limit = len(census.parties) - 1, 2**62 // len(census.parties)
    exchanges = settings.rounds if settings.cross_weight > 0 and others else 0

    def addable(_party: int, reply: Message) -> str:
        for name, array in reply.items():
            if checks.beyond(array, limit):  # the sum over all parties must have room in 64 bits
                return f"has a value in {name!r} that is too large to be added up"
        return ""

    begun: Message | None = yield Recall(MEND)
    found = {"round": np.array(0), "senders": np.empty(0, np.int64)} if begun is None else begun
    for round_ in range(int(found["round"]), exchanges):
        query, own = {"others": np.array(others)}, _by_sender(found, shapes)
        replies: Replies = yield Ask(MEND, "generators", query, round_, own, check=check, most=most)
        found, sent = {"round": np.array(round_ + 1)}, _gathered(replies, shapes)
        found["senders"] = senders = np.unique(sent["owner"])
        if len(senders):
            agreed = checks.Arrays(
                {name: (np.int64, (len(senders), *shape)) for name, shape in shapes.items()}
            )
            small = checks.both(agreed, addable)
            found |= yield Sum(MEND, "gradients", sent, round_, check=small, most=agreed.nbytes)
        yield Keep(MEND, partial(dict, found))
    own, nothing = _by_sender(found, shapes), checks.Arrays({})
    yield Ask(MEND, "mend", {"others": np.array(others)}, exchanges, own, check=nothing, most=0)


def _gathered(replies: Replies, shapes: Any) -> Found:
    """What the parties sent as one message; ``owner`` says whose each latent mean is."""
    parties = sorted(replies)
    means = [replies[party]["means"] for party in parties]
    return {
        **{name: np.concatenate([replies[party][name] for party in parties]) for name in shapes},
        "means": np.concatenate(means),
        "owner": np.repeat(np.array(parties), [len(own) for own in means]),
    }


def _by_sender(found: Message, shapes: Any) -> dict[int, Message]:
    """The sum that each sender gets."""
    return {
        int(party): {name: found[name][row] for name in shapes}
        for row, party in enumerate(found["senders"])
    }


def _generators(settings: NeighGenSettings, features: int) -> tuple[Check, int]:
    """A generator with some latent means, or neither of them; and how many bytes they can have."""

    def expected(means: int) -> checks.Arrays:
        shapes = generator_shapes(settings, features)
        arrays = {name: (np.float32, (min(means, 1), *shape)) for name, shape in shapes.items()}
        return checks.Arrays({**arrays, "means": (np.float32, (means, settings.latent))})

    def check(party: int, reply: Message) -> str:
        means = reply["means"].shape[0] if "means" in reply and reply["means"].ndim else 0
        if means > settings.groups:
            return f"has {means} latent means, more than {settings.groups}"
        return expected(means)(party, reply)

    return check, expected(settings.groups).nbytes
