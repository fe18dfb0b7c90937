"""Whether a party's replies for a threshold can be true: its counts must add up, every round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcover.algorithm.checks import Arrays
from fedcover.conformal import tdigest
from fedcover.conformal.protocol import Message, parts
from fedcover.conformal.quantiles import RULES, histogram_client
from fedcover.errors import FedcoverError

_BINS = 256
_POOLED = 0  # the talk of all nodes, beside those of groups


class QuantileCheck:
    """Judges the replies to one quantile rule, or to that of all groups side by side.

    Byte counts of the first round sum to the party's calibration nodes, those of a later one to the
    count that it gave for the byte which the query goes into.
    """

    def __init__(self, rule: str, calibration: Mapping[int, int], *, grouped: bool) -> None:
        self._rule, self._calibration, self._grouped = rule, calibration, grouped
        self._asked: Mapping[int, Message] = {}  # by talk
        self._given: dict[int, Mapping[int, Message]] = {}  # by party: replies to the query before
        self._giving: dict[int, Mapping[int, Message]] = {}

    def begin(self, query: Message) -> None:
        """The next replies will be to this query."""
        self._asked = parts(query, query["asked"].tolist()) if self._grouped else {_POOLED: query}
        self._given, self._giving = self._giving, {}

    def __call__(self, party: int, reply: Message) -> str:
        """What is wrong with the reply."""
        answers: Mapping[int, Message] = {_POOLED: reply}
        if self._grouped:
            named = {name.partition(".")[0] for name in reply}
            if not {str(_POOLED)} <= named <= {str(talk) for talk in self._asked}:
                return "does not answer what was asked"
            answers = parts(reply, map(int, named))
        for talk, answer in answers.items():
            wrong = self._one(party, talk, answer)
            if wrong:
                return wrong
        if self._grouped and int(self._asked[_POOLED]["depth"][0]) == 0:
            of_groups = sum(int(a["counts"].sum()) for t, a in answers.items() if t != _POOLED)
            if of_groups != self._calibration[party]:
                return f"counts {of_groups} scores by group where it has {self._calibration[party]}"
        self._giving[party] = answers
        return ""

    def _one(self, party: int, talk: int, reply: Message) -> str:
        n = self._calibration[party]
        if self._grouped or RULES[self._rule].client is histogram_client:
            return self._histogram(party, talk, reply, n)
        if self._rule == "average":
            wrong = Arrays({"quantile": (np.float32, (min(n, 1),)), "n": (np.int64, (1,))})
            return wrong(party, reply) or _same(int(reply["n"][0]), n)
        return _sketch(reply, n)

    def _histogram(self, party: int, talk: int, reply: Message, n: int) -> str:
        wrong = Arrays({"counts": (np.int64, (_BINS,))})(party, reply)
        if wrong:
            return wrong
        counts, query = reply["counts"], self._asked[talk]
        if (counts < 0).any():
            return "has a negative count"
        first = int(query["depth"][0]) == 0
        if not first:
            byte = int(query["prefix"][0]) % _BINS
            before = self._given[party].get(talk)
            n = 0 if before is None else int(before["counts"][byte])
        if (counts > n).any():  # so large that their sum could wrap round
            return f"has a count above {n}"
        if first and talk != _POOLED:  # how many are of one group, the party alone knows
            return ""
        return _same(int(counts.sum()), n)


def _same(given: int, n: int) -> str:
    return "" if given == n else f"counts {given} scores where it has {n}"


def _sketch(reply: Message, n: int) -> str:
    if set(reply) != {"sketch"} or reply["sketch"].dtype != np.uint8:
        return "has no sketch"
    try:
        return _same(tdigest.merge([reply["sketch"]]).get_total_weight(), n)
    except (FedcoverError, RuntimeError, ValueError):
        return "has a sketch that cannot be read"
