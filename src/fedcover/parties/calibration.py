"""Whether a site's replies for the threshold can be true: its counts must add up, every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcover.conformal import tdigest
from fedcover.conformal.protocol import Message, parts
from fedcover.conformal.quantiles import RULES, histogram_client
from fedcover.errors import FedcoverError
from fedcover.parties.checks import Arrays

_BINS = 256


class CalibrationCheck:
    """Judges the replies to :func:`fedcover.conformal.protocol.side_by_side` of quantile rules.

    Byte counts of the first round sum to the site's calibration nodes, those of a later one to the
    count that the site gave for the byte which the query goes into.
    """

    def __init__(
        self, cases: Sequence[tuple[str, str, float]], calibration: Mapping[int, int]
    ) -> None:
        self._rules = [rule for _, rule, _ in cases]
        self._calibration = calibration
        self._asked: Mapping[int, Message] = {}  # by talk
        self._given: dict[int, Mapping[int, Message]] = {}  # by site: replies to the query before
        self._giving: dict[int, Mapping[int, Message]] = {}

    def begin(self, query: Message) -> None:
        """The next replies will be to this query."""
        self._asked = parts(query, query["asked"].tolist())
        self._given, self._giving = self._giving, {}

    def __call__(self, site: int, reply: Message) -> str:
        """What is wrong with the reply."""
        if {name.partition(".")[0] for name in reply} != {str(talk) for talk in self._asked}:
            return "does not answer what was asked"
        answers = parts(reply, self._asked)
        for talk, answer in answers.items():
            wrong = self._one(site, talk, answer)
            if wrong:
                return wrong
        self._giving[site] = answers
        return ""

    def _one(self, site: int, talk: int, reply: Message) -> str:
        rule, n = self._rules[talk], self._calibration[site]
        if RULES[rule].client is histogram_client:
            return self._histogram(site, talk, reply, n)
        if rule == "average":
            wrong = Arrays({"quantile": (np.float32, (min(n, 1),)), "n": (np.int64, (1,))})
            return wrong(site, reply) or _same(int(reply["n"][0]), n)
        return _sketch(reply, n)

    def _histogram(self, site: int, talk: int, reply: Message, n: int) -> str:
        wrong = Arrays({"counts": (np.int64, (_BINS,))})(site, reply)
        if wrong:
            return wrong
        counts, query = reply["counts"], self._asked[talk]
        if (counts < 0).any():
            return "has a negative count"
        if int(query["depth"][0]) > 0:
            byte = int(query["prefix"][0]) % _BINS
            n = int(self._given[site][talk]["counts"][byte])
        if (counts > n).any():  # so large that their sum could wrap round
            return f"has a count above {n}"
        return _same(int(counts.sum()), n)


def _same(given: int, n: int) -> str:
    return "" if given == n else f"counts {given} scores where it has {n}"


def _sketch(reply: Message, n: int) -> str:
    wrong = set(reply) != {"sketch"} or reply["sketch"].dtype != np.uint8
    if wrong:
        return "has no sketch"
    try:
        return _same(tdigest.merge([reply["sketch"]]).get_total_weight(), n)
    except (FedcoverError, RuntimeError, ValueError):
        return "has a sketch that cannot be read"
