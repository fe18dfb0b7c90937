"""What left each party and what reached it: every array that passed, written by the carrier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedcover.config import recipe_of
from fedcover.conformal.protocol import Direction, Message

KINDS = {
    "shared": "weights",
    "tuned": "losses, tuned",
    "local": "losses, local",
    "mend": "generators",
    "keys": "links in common",
    "matching": "links in common",
    "sums": "neighbours' sums",
    "links": "VGAE weights",
    "cell": "choice of M and p",
    "quantile": "quantile",
    "spread": "spread of scores",
}


@dataclass
class Entry:
    """One array of a message, sent alike in ``rounds`` rounds from ``round`` on.

    "up" left the party, "down" reached it. ``part`` says what of the job it belongs to.
    """

    part: str
    verb: str
    array: str
    direction: Direction
    party: int
    round: int
    type: str
    shape: tuple[int, ...]
    bytes: int
    rounds: int = 1


class Ledger:
    """The account of one repetition."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._last: dict[tuple[str, str, str, str, int], Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def record(
        self,
        part: str,
        verb: str,
        party: int,
        round_: int,
        direction: Direction,
        message: Message,
        rounds: int = 1,
    ) -> None:
        """Write down every array of a message."""
        for name, kind, shape, size in described(message):
            place = (part, verb, name, direction, party, round_)
            self.add(Entry(*place, kind, shape, size, rounds))

    def add(self, entry: Entry) -> None:
        """Write down one array; what is sent alike round after round is one entry."""
        key = (entry.part, entry.verb, entry.array, entry.direction, entry.party)
        alike, last = (entry.type, entry.shape, entry.round), self._last.get(key)
        if last is not None and (last.type, last.shape, last.round + last.rounds) == alike:
            last.rounds += entry.rounds
        else:
            self._last[key] = entry
            self.entries.append(entry)

    def of(self, method: str, parts: Sequence[str]) -> list[Entry]:
        """What a method needs, whose parts are called ``parts``; of a part that several methods
        share, each has the whole."""

        def needed(part: str) -> bool:
            name, step = split_part(part)
            if part in parts or name == "data":
                return True
            if step == "cell":
                return f"{name}/cell" in parts
            return name == method and step not in ("shared", "tuned", "local")

        return [entry for entry in self.entries if needed(entry.part)]


def described(message: Message) -> list[tuple[str, str, tuple[int, ...], int]]:
    """Name, type, shape and bytes of every array."""
    return [(name, str(array.dtype), array.shape, array.nbytes) for name, array in message.items()]


def split_part(part: str) -> tuple[str, str]:
    """Whose part of the job it is, and which step: that of ``gen/cell 5 0.1`` is ``cell``."""
    name, _, step = part.rpartition("/")
    return name, step.partition(" ")[0]


def totals(entries: Sequence[Entry]) -> dict[str, dict[str, int]]:
    """Bytes by kind and direction, summed over parties and rounds."""
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        kind = found.setdefault(kind_of(entry.part), {"up": 0, "down": 0})
        kind[entry.direction] += entry.bytes * entry.rounds
    return found


def kind_of(part: str) -> str:
    """What a part of the job is called where bytes are summed up."""
    name, step = split_part(part)
    if step == "shared" and not recipe_of(name).method.average:
        return "losses"
    return KINDS.get(step, part.rpartition("/")[2])
