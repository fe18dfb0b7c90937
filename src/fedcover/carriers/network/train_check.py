"""Which replies to a round of training the coordinator refuses."""

from __future__ import annotations

import numpy as np

from fedcover.algorithm.calibrate import Census
from fedcover.algorithm.checks import Arrays, too_large
from fedcover.algorithm.requests import Ask, Check, Train
from fedcover.conformal.protocol import Message
from fedcover.models.gnn import operators
from fedcover.training.program import NO_LOSS
from fedcover.training.weights import WEIGHTS


def expected(request: Ask | Train, features: int, census: Census) -> tuple[Check, int]:
    """What judges a reply, and how many bytes an honest one can have."""
    if isinstance(request, Ask):
        return request.check, request.most
    plan = request.plan
    entries = request.rounds if request.fit and not plan.average else 1
    shapes: dict[str, tuple[int, ...]] = {"loss": (entries,), "count": (entries,)}
    if request.fit and plan.average:
        count = operators(plan.model)
        wide, narrow = count * features, count * plan.hidden
        sizes = ((wide, plan.hidden), (plan.hidden,), (narrow, plan.classes), (plan.classes,))
        shapes |= dict(zip(WEIGHTS, sizes, strict=True))
    arrays = Arrays({name: (np.int64, shape) for name, shape in shapes.items()})
    valid = dict.fromkeys(census.parties, 0) if plan.task == "links" else census.of("valid")

    def check(site: int, reply: Message) -> str:
        if wrong := arrays(site, reply):
            return wrong
        losses = reply["loss"]
        if (losses == NO_LOSS).any():
            return "has a loss that is not finite"
        if (losses < 0).any():
            return "has a negative loss"
        if (reply["count"] != valid[site]).any():
            return f"counts {reply['count'][0]} validation nodes, but has {valid[site]}"
        for name in WEIGHTS:
            if name in reply and too_large(reply[name]):
                return f"has a value in {name!r} that cannot be"
        return ""

    return check, arrays.nbytes
