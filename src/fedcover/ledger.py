"""What left each party and what reached it: every array that passed, written by the carrier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedcover.config import recipe_of
from fedcover.conformal.protocol import Direction, Message


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
        """Write down every array; what is sent alike round after round is one entry."""
        for name, array in message.items():
            key, kind, shape = (part, verb, name, direction, party), str(array.dtype), array.shape
            last = self._last.get(key)
            if last and (last.type, last.shape, last.round + last.rounds) == (kind, shape, round_):
                last.rounds += rounds
                continue
            entry = Entry(*key, round_, kind, shape, array.nbytes, rounds)
            self._last[key] = entry
            self.entries.append(entry)

    def of(self, method: str, parts: Sequence[str]) -> list[Entry]:
        """What one method needs: of parts that several share, each of them has the whole."""
        return [entry for entry in self.entries if belongs(entry.part, method, parts)]


def belongs(part: str, method: str, parts: Sequence[str]) -> bool:
    """Whether a part of the job is one of the method's, whose models are called ``parts``."""
    name, _, step = part.rpartition("/")
    kind = step.partition(" ")[0]
    if part in parts or name == "data":
        return True
    if kind == "cell":
        return f"{name}/cell" in parts
    return name == method and kind not in ("shared", "tuned", "local")


def totals(entries: Sequence[Entry]) -> dict[str, dict[str, int]]:
    """Bytes by kind and direction, summed over parties and rounds."""
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        kind = found.setdefault(kind_of(entry.part), {"up": 0, "down": 0})
        kind[entry.direction] += entry.bytes * entry.rounds
    return found


KINDS = {
    "shared": "weights",
    "tuned": "losses, tuned",
    "local": "losses, local",
    "mend": "generators",
    "links": "VGAE weights",
    "cell": "choice of M and p",
    "quantile": "quantile",
}


def kind_of(part: str) -> str:
    """What a part of the job is called where bytes are summed up."""
    name, _, step = part.rpartition("/")
    if step == "shared" and not recipe_of(name).method.average:
        return "losses"
    return KINDS.get(step.partition(" ")[0], step)
