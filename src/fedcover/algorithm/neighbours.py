"""+neighbours as the coordinator sees it: it carries what it cannot read, and adds what it cannot
tell from noise (:mod:`fedcover.party.neighbours`, docs/neighbours.md).

It learns how many rows each party asks for, and of every row how many far ends are in it: a row
with fewer than ``least`` of them goes to nobody, whatever its owner says.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from fedcover.algorithm import checks
from fedcover.algorithm.requests import (
    Ask,
    Census,
    Check,
    Conversation,
    Parallel,
    Replies,
    Sum,
    Tell,
    once,
)
from fedcover.config import Config
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError
from fedcover.plans import KEYS, MATCHING, SUMS, extra_columns

Carried: TypeAlias = Mapping[int, Message]  # by recipient: messages under their senders' numbers

LARGEST = 1 << 28  # bytes of a message that the coordinator cannot read


def exchange(
    config: Config, classes: int, features: int, census: Census, names: Sequence[str]
) -> Conversation[Message]:
    """Every party gets the rows of sums that it asks for, where far ends are enough; how many each
    one got (``rows``)."""
    parties, least = sorted(census.parties), config.neighbour.least
    private = config.matching != "open"
    columns = extra_columns(config, classes) or features

    def ask(part: str, verb: str, check: Check, **more: Any) -> Conversation[Replies]:
        replies: Replies = yield Ask(part, verb, check=check, **more)
        if silent := [names[party] for party in parties if party not in replies]:
            raise DataError(
                f"+neighbours needs every party while it adds up, but {', '.join(silent)} did not "
                f"answer ({verb}); start the job again to go on from here."
            )
        return replies

    def added(owner: int, rows: int, kind: DTypeLike, carried: Carried) -> Conversation[Message]:
        """The sum of what all others have for one party; one question for each."""
        query = {"owner": np.array(owner), "rows": np.array(rows)}
        own = {k: {str(k): one[str(owner)]} for k, one in carried.items() if str(owner) in one}
        to = census.parties - {owner} if private else frozenset(own)
        shapes = {"sums": (rows, columns), "numbers": (rows,), "parties": (1,)}
        kinds = {"sums": kind, "numbers": np.uint32, "parties": np.int64}
        check = checks.Arrays({name: (kinds[name], shapes[name]) for name in shapes}, _alone)
        total: Message = yield Sum(SUMS, "far ends", query, owner, own, to, check)
        if int(total["parties"][0]) != len(to):
            raise DataError(
                f"a party's term is missing in the sums for {names[owner]}, and masks do not "
                "cancel without it; start the job again to go on from here."
            )
        numbers, sums = total["numbers"] % (1 << 32), total["sums"].copy()
        sums[numbers < least] = 0  # whatever the owner says: this is for nobody
        return {"numbers": numbers, "sums": sums.astype(kind)}

    def talk() -> Conversation[Message]:
        carried: Carried = {}
        if private:
            keys = yield from ask(KEYS, "key", checks.Arrays({"key": (np.uint8, (32,))}))
            yield Tell(KEYS, {"keys": np.stack([keys[party]["key"] for party in parties])})
            for verb in ("request", "reply", "match"):
                carried = _delivered((yield from ask(MATCHING, verb, Sealed(parties), own=carried)))
        query, known = {"parties": np.array(parties)}, Sealed(parties, census.of("nodes"))
        replies = yield from ask(MATCHING, "places", known, query=query, own=carried)
        rows = {party: int(reply["rows"][0]) for party, reply in replies.items()}
        wide = {int(reply["bits"][0]) for reply in replies.values()}
        if len(wide) > 1:
            raise DataError("the parties do not agree on which features are numbers.")
        kind = np.uint16 if wide == {16} else np.int64
        carried = _delivered(replies)
        talks = {str(k): added(k, rows[k], kind, carried) for k in parties if rows[k]}
        sums: Mapping[str, Message] = {}
        if talks:
            sums = yield Parallel(talks)
        none = {"numbers": np.empty(0, np.int64), "sums": np.empty((0, columns), kind)}
        found = {party: sums.get(str(party), none) for party in parties}
        yield from ask(SUMS, "receive", checks.Arrays({}), own=found)
        return {"rows": np.array([(found[k]["numbers"] >= least).sum() for k in parties])}

    return once(SUMS, talk())


class Sealed:
    """Judges messages between parties, which nobody else can read: they have an address and a
    limit. With ``nodes``, a party says how many rows it asks for, too."""

    nbytes = LARGEST

    def __init__(self, parties: Sequence[int], nodes: Mapping[int, int] | None = None) -> None:
        self._parties, self._nodes = {str(party) for party in parties}, nodes

    def __call__(self, party: int, reply: Message) -> str:
        """What is wrong with the reply."""
        letters = {name: array for name, array in reply.items() if name.isdecimal()}
        if not letters.keys() <= self._parties - {str(party)}:
            return "has a message for nobody"
        if any(array.dtype != np.uint8 or array.ndim != 1 for array in letters.values()):
            return "has a message that is not sealed"
        rest = {name: array for name, array in reply.items() if name not in letters}
        if self._nodes is None:
            return checks.Arrays({})(party, rest)
        if wrong := checks.Arrays(dict.fromkeys(("rows", "bits"), (np.int64, (1,))))(party, rest):
            return wrong
        if not 0 <= rest["rows"][0] <= self._nodes[party] or rest["bits"][0] not in (16, 64):
            return "asks for rows that cannot be"
        return ""


def _alone(_party: int, reply: Message) -> str:
    return "" if reply["parties"][0] == 1 else "is not one party's term"


def _delivered(replies: Replies) -> Carried:
    """By recipient: what every sender has for it, under the sender's number."""
    found: dict[int, dict[str, Any]] = {}
    for sender, reply in replies.items():
        for name, array in reply.items():
            if name.isdecimal():
                found.setdefault(int(name), {})[str(sender)] = array
    return found
