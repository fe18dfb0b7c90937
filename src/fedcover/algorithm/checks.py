"""Which replies the coordinator refuses: a party may be broken, or hostile."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedcover.algorithm.requests import Ask, Census, Check, Question
from fedcover.conformal.order import BINS, from_order_key, histogram_client, order_key
from fedcover.conformal.protocol import Client, Message, parts
from fedcover.conformal.robust import bin_of
from fedcover.conformal.rules import RULES, merged_sketch
from fedcover.conformal.temperature import MAX_TEMPERATURE, MIN_TEMPERATURE
from fedcover.errors import FedcoverError
from fedcover.models.gnn import WEIGHTS, weight_shapes
from fedcover.training.program import NO_LOSS

Shape = tuple[int, ...]
FIXED_POINT = ("slopes", "losses")  # sums of any sign; all other integers are counts
LARGEST = 1 << 55  # a hundred such numbers, added up, still are an integer of 64 bits
MOST_COUNTED = 1 << 40  # far more nodes than a site has, far fewer than an integer holds
_FINITE = np.array([np.finfo(np.float32).min, np.finfo(np.float32).max])
_POOLED = 0  # the talk of all nodes, beside those of groups


class Arrays:
    """Arrays of these names, types and shapes, finite, and no others; with ``fewer``, they may have
    fewer rows. What passes is judged by ``also``."""

    def __init__(
        self,
        expected: Mapping[str, tuple[DTypeLike, Shape]],
        also: Check = lambda _party, _reply: "",
        *,
        fewer: bool = False,
    ) -> None:
        self._expected = {name: (np.dtype(kind), shape) for name, (kind, shape) in expected.items()}
        self._also, self._fewer = also, fewer

    @property
    def nbytes(self) -> int:
        """How large they are together."""
        return sum(kind.itemsize * prod(shape) for kind, shape in self._expected.values())

    def __call__(self, party: int, reply: Message) -> str:
        """What is wrong with the reply."""
        if set(reply) != set(self._expected):
            return f"has {_listed(reply)}, not {_listed(self._expected)}"
        for name, (kind, shape) in self._expected.items():
            array = reply[name]
            if array.dtype != kind:
                return f"has {name!r} of type {array.dtype}, not {kind}"
            if self._fewer and array.ndim:
                shape = (min(shape[0], len(array)), *shape[1:])
            if array.shape != shape:
                return f"has {name!r} of shape {array.shape}, not {shape}"
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return f"has a value in {name!r} that is not finite"
        return self._also(party, reply)


class Alike:
    """Arrays as an honest site without any nodes would send them: it has the same names, types and
    shapes, and counts that are none below 0."""

    def __init__(self, client: Client[Any], nothing: Any) -> None:
        self._client, self._nothing = client, nothing
        self._expected = Arrays({})

    def begin(self, query: Message) -> None:
        """The next replies will be to this query."""
        sent = self._client(self._nothing, query)
        self._expected = Arrays({name: (a.dtype, a.shape) for name, a in sent.items()})

    def __call__(self, party: int, reply: Message) -> str:
        """What is wrong with the reply."""
        if wrong := self._expected(party, reply):
            return wrong
        for name, array in reply.items():
            if name in FIXED_POINT:
                if beyond(array, LARGEST):
                    return f"has {name!r}, which cannot be so large"
            elif array.dtype.kind == "i" and ((array < 0) | (array > MOST_COUNTED)).any():
                return f"has {name!r}, which are not counts"
            elif name == "temperature" and not MIN_TEMPERATURE <= array[0] <= MAX_TEMPERATURE:
                return "has a temperature that cannot be"
        return ""


def beyond(array: NDArray[Any], limit: int) -> bool:
    """Whether a value is above the limit, or below its negative."""
    return bool(((array > limit) | (array < -limit)).any())


def expected(request: Question, features: int, census: Census) -> tuple[Check, int]:
    """What judges a reply to a question or a round of training, and how many bytes it can have."""
    if isinstance(request, Ask):
        return request.check, request.most
    plan = request.plan
    entries = request.rounds if request.fit and not plan.average else 1
    shapes: dict[str, Shape] = {"loss": (entries,), "count": (entries,)}
    if request.fit and plan.average:
        shapes |= weight_shapes(plan.model, features, plan.hidden, plan.classes)
    valid = dict.fromkeys(census.parties, 0) if plan.task == "links" else census.of("valid")

    def check(party: int, reply: Message) -> str:
        losses = reply["loss"]
        if (losses == NO_LOSS).any():
            return "has a loss that is not finite"
        if (losses < 0).any():
            return "has a negative loss"
        if (reply["count"] != valid[party]).any():
            return f"counts {reply['count'][0]} validation nodes, but has {valid[party]}"
        for name in WEIGHTS:
            if name in reply and beyond(reply[name], LARGEST):
                return f"has a value in {name!r} that cannot be"
        return ""

    arrays = Arrays({name: (np.int64, shape) for name, shape in shapes.items()}, check)
    return arrays, arrays.nbytes


class QuantileCheck:
    """Judges the replies to one quantile rule, or to that of all groups side by side.

    Counts must add up in every round: those of the first one's bytes sum to the party's calibration
    nodes, those of a later one to the count that it gave for the byte which the query goes into.
    With ``spread``, they must agree with how a party said before that its scores are spread.
    """

    def __init__(
        self,
        rule: str,
        calibration: Mapping[int, int],
        *,
        grouped: bool,
        spread: Mapping[int, NDArray[np.int64]] | None = None,
    ) -> None:
        self._rule, self._calibration, self._grouped = rule, calibration, grouped
        self._spread = spread or {}
        self._below: dict[int, int] = {}  # by party: its scores below the query's prefix
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
        first = self._grouped and all(int(q["depth"][0]) == 0 for q in self._asked.values())
        if self._grouped:
            named = {name.rpartition(".")[0] for name in reply}  # "" without a point
            asked = {str(talk) for talk in self._asked}
            if not first:  # whom it holds nobody of, it has left out in the first round
                asked &= {str(talk) for talk in self._given.get(party, {})}
            if not ({str(_POOLED)} if first else asked) <= named <= asked:
                return "does not answer what was asked"
            answers = parts(reply, map(int, named))
        for talk, answer in answers.items():
            if wrong := self._one(party, talk, answer):
                return wrong
        if first:
            of_groups = sum(int(a["counts"].sum()) for t, a in answers.items() if t != _POOLED)
            if wrong := _same(of_groups, self._calibration[party]):
                return f"{wrong} in all groups"
        self._giving[party] = answers
        return ""

    def _one(self, party: int, talk: int, reply: Message) -> str:
        n = self._calibration[party]
        if self._grouped or RULES[self._rule].client is histogram_client:
            wrong = Arrays({"counts": (np.int64, (BINS,))})
            return wrong(party, reply) or self._histogram(party, talk, reply["counts"], n)
        if self._rule == "average":
            wrong = Arrays({"quantile": (np.float32, (min(n, 1),)), "n": (np.int64, (1,))})
            return wrong(party, reply) or _same(int(reply["n"][0]), n)
        return _sketch(reply, n)

    def _histogram(self, party: int, talk: int, counts: NDArray[np.int64], n: int) -> str:
        query = self._asked[talk]
        if (counts < 0).any():
            return "has a negative count"
        first = int(query["depth"][0]) == 0
        if not first:
            before = self._given[party].get(talk)
            n = 0 if before is None else int(before["counts"][int(query["prefix"][0]) % BINS])
        if (counts > n).any():  # so large that their sum could wrap round
            return f"has a count above {n}"
        depth, prefix = int(query["depth"][0]), int(query["prefix"][0])
        bins = prefix * BINS + np.arange(BINS + 1) << 8 * (3 - depth)
        low, high = order_key(_FINITE)
        if counts[(bins[1:] <= low) | (bins[:-1] > high)].any():
            return "counts scores that are not finite numbers"
        if first and talk != _POOLED:  # how many are of one group, the party alone knows
            return ""
        return _same(int(counts.sum()), n) or self._as_spread(party, counts)

    def _as_spread(self, party: int, counts: NDArray[np.int64]) -> str:
        """At the end of each byte, whole bins are below, and no more than its own bin is begun."""
        if party not in self._spread:
            return ""
        depth, prefix = (int(self._asked[_POOLED][name][0]) for name in ("depth", "prefix"))
        before = self._below.get(party, 0) if depth else 0
        if depth:
            before += int(self._given[party][_POOLED]["counts"][: prefix % BINS].sum())
        self._below[party] = before
        ends = ((prefix * BINS + np.arange(1, BINS + 1)) << 8 * (3 - depth)) - 1
        last = bin_of(from_order_key(np.clip(ends, *order_key([-np.inf, np.inf]))))
        held = np.concatenate([[0], np.cumsum(self._spread[party])])
        at_most = before + np.cumsum(counts)
        if (at_most < held[last]).any() or (at_most > held[last + 1]).any():
            return "has counts that do not agree with the spread of its scores"
        return ""


def _same(given: int, n: int) -> str:
    return "" if given == n else f"counts {given} scores where it has {n}"


def _sketch(reply: Message, n: int) -> str:
    if set(reply) != {"sketch"} or reply["sketch"].dtype != np.uint8:
        return "has no sketch"
    try:
        return _same(merged_sketch([reply["sketch"]]).get_total_weight(), n)
    except (FedcoverError, RuntimeError, ValueError, IndexError):
        return "has a sketch that cannot be read"


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"
