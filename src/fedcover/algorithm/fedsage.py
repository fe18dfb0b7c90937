"""FedSage+ as the coordinator sees it: generators of neighbours, and what they learn together.

A round takes two messages each way. The parties send their generators and latent means; all get
all of them, and answer with gradients, which are added up (:mod:`fedcover.fixed_point`).
Every party gets the sum for its own generator with the next question.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from fedcover.algorithm import checks
from fedcover.algorithm.requests import Ask, Census, Conversation, Keep, Recall, Sum, gathered
from fedcover.config import NeighGenSettings
from fedcover.conformal.protocol import Message
from fedcover.plans import MEND, generator_shapes


def mend(settings: NeighGenSettings, features: int, census: Census) -> Conversation[None]:
    """Every party mends its graph with neighbours that it generates."""
    shapes = generator_shapes(settings, features)
    others, limit = np.array(len(census.parties) - 1), 2**62 // len(census.parties)
    exchanges = settings.rounds if settings.cross_weight > 0 and others else 0

    def generator(means: int, **options: Any) -> checks.Arrays:
        """One with so many latent means; without any, there is none."""
        arrays = {name: (np.float32, (min(means, 1), *shape)) for name, shape in shapes.items()}
        means_shape = means, settings.latent
        return checks.Arrays({**arrays, "means": (np.float32, means_shape)}, **options)

    def whole(party: int, reply: Message) -> str:
        return generator(len(reply["means"]))(party, reply)

    def addable(_party: int, reply: Message) -> str:
        for name, array in reply.items():
            if checks.beyond(array, limit):  # the sum over all parties must have room in 64 bits
                return f"has a value in {name!r} that is too large to be added up"
        return ""

    known = generator(settings.groups, also=whole, fewer=True)
    begun: Message | None = yield Recall(MEND)
    found = {"round": np.array(0), "senders": np.empty(0, np.int64)} if begun is None else begun
    for round_ in range(int(found["round"]), exchanges):
        query, own = {"others": others}, _by_sender(found, shapes)
        replies = yield Ask(MEND, "generators", query, round_, own, check=known)
        sent = {name: gathered(replies, name)[0] for name in (*shapes, "means")}
        sent["owner"] = gathered(replies, "means")[1]
        senders = np.unique(sent["owner"])
        found = {"round": np.array(round_ + 1), "senders": senders}
        if len(senders):
            sums = {name: (np.int64, (len(senders), *shape)) for name, shape in shapes.items()}
            small = checks.Arrays(sums, addable)
            found |= yield Sum(MEND, "gradients", sent, round_, check=small)
        yield Keep(MEND, partial(dict, found))
    own, nothing = _by_sender(found, shapes), checks.Arrays({})
    yield Ask(MEND, "mend", {"others": others}, exchanges, own, check=nothing)


def _by_sender(found: Message, names: Iterable[str]) -> dict[int, Message]:
    """The sum that each sender gets."""
    return {
        int(party): {name: found[name][row] for name in names}
        for row, party in enumerate(found["senders"])
    }
