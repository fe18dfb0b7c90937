"""Which replies the coordinator refuses: a party may be broken, or hostile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fedcover.algorithm.requests import Check
from fedcover.conformal.protocol import Client, Message

Shape = tuple[int, ...]
FIXED_POINT = ("slopes", "losses")  # sums of any sign; all other integers are counts
LARGEST = 1 << 55
MOST_COUNTED = 1 << 40  # far more nodes than a site has, far fewer than an integer holds


class Arrays:
    """Arrays of these names, types and shapes, finite, and no others."""

    def __init__(self, expected: Mapping[str, tuple[DTypeLike, Shape]]) -> None:
        self._expected = {name: (np.dtype(kind), shape) for name, (kind, shape) in expected.items()}

    @property
    def nbytes(self) -> int:
        """How large they are together."""
        return sum(
            kind.itemsize * int(np.prod(shape, dtype=np.int64))
            for kind, shape in self._expected.values()
        )

    def __call__(self, _site: int, reply: Message) -> str:
        """What is wrong with the reply."""
        if set(reply) != set(self._expected):
            return f"has {_listed(reply)}, not {_listed(self._expected)}"
        for name, (kind, shape) in self._expected.items():
            array = reply[name]
            if array.dtype != kind:
                return f"has {name!r} of type {array.dtype}, not {kind}"
            if array.shape != shape:
                return f"has {name!r} of shape {array.shape}, not {shape}"
            if not_finite(array):
                return f"has a value in {name!r} that is not finite"
        return ""


class Alike:
    """Arrays as an honest site without any nodes would send them: it has the same names, types and
    shapes, and counts that are none below 0."""

    def __init__(self, client: Client[Any], nothing: Any) -> None:
        self._client, self._nothing = client, nothing
        self._expected: Arrays | None = None

    def begin(self, query: Message) -> None:
        """The next replies will be to this query."""
        sent = self._client(self._nothing, query)
        self._expected = Arrays({name: (a.dtype, a.shape) for name, a in sent.items()})

    def __call__(self, site: int, reply: Message) -> str:
        """What is wrong with the reply."""
        assert self._expected is not None
        wrong = self._expected(site, reply)
        if wrong:
            return wrong
        for name, array in reply.items():
            if name in FIXED_POINT and too_large(array):
                return f"has {name!r}, which cannot be so large"
            counts = array.dtype.kind == "i" and name not in FIXED_POINT
            if counts and ((array < 0) | (array > MOST_COUNTED)).any():
                return f"has {name!r}, which are not counts"
        return ""


def too_large(array: np.ndarray[Any, Any]) -> bool:
    """Whether a hundred such numbers, added up, might not be an integer of 64 bits."""
    return bool(((array > LARGEST) | (array < -LARGEST)).any())


def not_finite(array: np.ndarray[Any, Any]) -> bool:
    """Whether a NaN or an infinity is in it."""
    return array.dtype.kind == "f" and not np.isfinite(array).all()


def both(first: Check, second: Check) -> Check:
    """The second where the first finds nothing."""

    def check(site: int, reply: Message) -> str:
        return first(site, reply) or second(site, reply)

    return check


def prototypes(counts: tuple[int, ...], features: int) -> tuple[Check, int]:
    """At most M rows of the agreed width for every M, and how many bytes they can have."""

    def check(_site: int, reply: Message) -> str:
        if set(reply) != {str(m) for m in counts}:
            return f"has prototypes for M = {_listed(reply)}, not {_listed(map(str, counts))}"
        for m in counts:
            rows = reply[str(m)]
            if rows.dtype != np.float32:
                return f"has prototypes of type {rows.dtype}, not float32"
            if rows.ndim != 2 or rows.shape[1] != features:
                return f"has prototypes of shape {rows.shape}, but there are {features} features"
            if len(rows) > m:
                return f"has {len(rows)} prototypes for M = {m}"
            if not_finite(rows):
                return "has a prototype that is not finite"
        return ""

    return check, sum(counts) * features * 4


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"
