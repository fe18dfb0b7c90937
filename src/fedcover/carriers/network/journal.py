"""What happened on the way of a job.

The ledger of a real federation has one JSON line for each array that travelled, written as it
happens: a site writes what left it before it leaves, and what reached it; the coordinator writes
the same from its side. ``fedcover ledger show`` reads either. The coordinator also records who
answered, what was refused, and where the time went.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcover.carriers.network.messages import Place, Reply
from fedcover.conformal.protocol import Direction, Message
from fedcover.errors import DataError
from fedcover.ledger import Entry, Ledger, described

FILE = "ledger.jsonl"
LONGEST = 1 << 16  # bytes of a line
KEY = ("job", "site", "seed", "part", "direction", "array", "type")
FIELDS = ("time", *KEY, "verb", "round", "shape", "bytes")


def record(
    path: Path, job: str, site: str, direction: Direction, messages: Sequence[tuple[Place, Message]]
) -> None:
    """Append every array of the messages to a ledger file; one without arrays is a line, too."""
    now, lines = datetime.now(UTC).isoformat(timespec="milliseconds"), ""
    for place, message in messages:
        head = {"time": now, "job": job, "site": site, "direction": direction, **place._asdict()}
        for array in described(message) or [("", "", (), 0)]:
            own = dict(zip(("array", "type", "shape", "bytes"), array, strict=True))
            lines += json.dumps(head | own) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    _append(path, lines.encode())


def _append(path: Path, lines: bytes) -> None:
    """Whole lines or none. What a crash has cut off was of a message that never left."""
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - LONGEST, 0))
        end = file.read()
        size -= len(end) - (end.rfind(b"\n") + 1)
        file.truncate(size)
        try:
            left = memoryview(lines)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:  # the disk is full
            file.truncate(size)
            raise


def read(path: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of a ledger file; the last one may have been cut off by a crash."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a ledger: {error}.") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not set(FIELDS) <= set(row):
                raise ValueError
        except (ValueError, TypeError):
            if number == len(lines):
                return
            raise DataError(f"{path}, line {number}: this is not a line of a ledger.") from None
        yield row


def totals(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By job, site, part, direction and array: messages, bytes, and the last shape."""
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        named = {name: row[name] for name in KEY}
        entry = sums.setdefault(tuple(named.values()), named | {"messages": 0, "bytes": 0})
        entry["messages"] += 1
        entry["bytes"] += row["bytes"]
        entry["shape"] = row["shape"]
    return list(sums.values())


def ledgers(path: Path, sites: Sequence[str], seeds: Sequence[int]) -> dict[int, Ledger]:
    """The account of every repetition, as a simulation keeps it, from a coordinator's lines.

    What concerns all repetitions is in the first one's.
    """
    found = {seed: Ledger() for seed in seeds}
    for row in read(path):
        if row["array"] and row["site"] in sites:
            seed, party = seeds[0] if row["seed"] is None else row["seed"], sites.index(row["site"])
            place = (row["part"], row["verb"], row["array"], row["direction"], party, row["round"])
            found[seed].add(Entry(*place, row["type"], tuple(row["shape"]), row["bytes"]))
    return found


@dataclass(frozen=True)
class Refusal:
    """A reply that was not used; ``why`` goes on after "the reply of the site"."""

    phase: str
    round: int
    site: str
    why: str

    def __str__(self) -> str:
        return sentences([self])[0]


@dataclass
class Record:
    """For the run's notes."""

    answered: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)  # by phase and round
    refused: list[Refusal] = field(default_factory=list)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)  # by phase and cause

    def spend(self, phase: str, whole: float, transfer: float, slowest: Reply) -> None:
        """Add a round's seconds: what its slowest site did, what travelling took, and the rest."""
        causes = {
            "start-up": slowest.preparing,
            "training": slowest.seconds - slowest.preparing,
            "transfer": transfer,
        }
        causes["waiting"] = max(whole - sum(causes.values()), 0.0)
        sums = self.seconds.setdefault(phase, dict.fromkeys(causes, 0.0))
        for cause, seconds in causes.items():
            sums[cause] += seconds

    def to_json(self) -> str:
        """For a checkpoint."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """From what :meth:`to_json` made."""
        content = json.loads(text)
        return cls(
            {p: [tuple(sites) for sites in rounds] for p, rounds in content["answered"].items()},
            [Refusal(**one) for one in content["refused"]],
            content["seconds"],
        )


def sentences(refusals: Sequence[Refusal]) -> list[str]:
    """One for each site, phase and reason; what was said again and again is said once."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for one in refusals:
        alike.setdefault((one.phase, one.site, one.why), []).append(one.round)
    found = []
    for (phase, site, why), rounds in alike.items():
        when = f"{len(rounds)} times in rounds {min(rounds)} to {max(rounds)}"
        when = when if len(rounds) > 1 else f"round {rounds[0]}"
        found.append(f"{phase}, {when}: the reply of {site} {why}.")
    return found
