"""What happened on the way of a job.

The ledger of a real federation has one JSON line for each array that travelled, written as it
happens: a site writes what left it before it leaves, and what reached it; the coordinator writes
the same from its side. ``fedcover ledger show`` reads either. The coordinator also records who
answered, what was refused, and where the time went.

The lines are a chain: each ends with a hash of itself and of the one before it. At the end of a
job a site and the coordinator tell each other the hash of their last line, and write the other's
down.
So a line that is changed or taken out is found by ``fedcover ledger verify``: in the chain, or,
where somebody has made a whole chain anew, beside the other side's ledger.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover.carriers.network.messages import Place, Reply
from fedcover.conformal.protocol import Direction, Message
from fedcover.errors import DataError
from fedcover.ledger import Entry, Ledger, described

FILE = "ledger.jsonl"
LONGEST = 1 << 16  # bytes of a line
CLOSE, HEAD = "data/close", "head"  # the end of a job, and the hash that is told there
KEY = ("job", "site", "seed", "part", "direction", "array", "type")
FIELDS = ("time", *KEY, "verb", "round", "shape", "bytes")
CHAIN = "chain"  # the last field of a line
_BEGIN = "0" * 64  # what is before the first line


def record(
    path: Path, job: str, site: str, direction: Direction, messages: Sequence[tuple[Place, Message]]
) -> None:
    """Append every array of the messages to a ledger file; one without arrays is a line, too."""
    now, rows = datetime.now(UTC).isoformat(timespec="milliseconds"), []
    for place, message in messages:
        about = {"time": now, "job": job, "site": site, "direction": direction, **place._asdict()}
        for array in described(message) or [("", "", (), 0)]:
            row = about | dict(zip(("array", "type", "shape", "bytes"), array, strict=True))
            if place.part == CLOSE and row["array"] == HEAD:
                row[HEAD] = message[HEAD].tobytes().hex()
            rows.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    _append(path, rows)


def _chained(rows: Iterable[Mapping[str, Any]], before: str) -> Iterator[dict[str, Any]]:
    """The rows with their hashes, after a line with this one."""
    for row in rows:
        before = hashlib.sha256((before + json.dumps(row)).encode()).hexdigest()
        yield {**row, CHAIN: before}


def _append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Whole lines or none. What a crash has cut off was of a message that never left."""
    with open(path, "a+b", buffering=0, opener=_for_its_owner) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - LONGEST, 0))
        end = file.read()
        whole = end[: end.rfind(b"\n") + 1]
        size -= len(end) - len(whole)
        file.truncate(size)
        chained = _chained(rows, _last_hash(whole))
        lines = "".join(f"{json.dumps(row)}\n" for row in chained).encode()
        try:
            left = memoryview(lines)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:  # the disk is full
            file.truncate(size)
            raise


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def _last_hash(lines: bytes) -> str:
    """The hash at the end of these whole lines; of the beginning, if there is none."""
    last = lines.rstrip(b"\n").rpartition(b"\n")[2]
    try:
        return str(json.loads(last)[CHAIN]) if last else _BEGIN
    except (ValueError, TypeError, KeyError):
        return _BEGIN


def head(path: Path) -> NDArray[np.uint8]:
    """The hash of the last line, 32 bytes."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - LONGEST, 0))
        end = file.read()
    return np.frombuffer(bytes.fromhex(_last_hash(end[: end.rfind(b"\n") + 1])), np.uint8)


def verify(path: Path, others: Sequence[Path] = ()) -> int:
    """How many lines the ledger has, all of them as they were written.

    ``others`` are ledgers of the other side: the hash that each wrote down of this one, at the end
    of a job, must be one of this ledger's lines. Refused is the first line that was changed, or
    before which one is missing.
    """
    rows = _whole(path)
    own, sites = {row[CHAIN] for row in rows}, {row["site"] for row in rows}
    jobs = {row["job"] for row in rows}
    for other in others:
        theirs = _whole(other)
        known = own | {row[CHAIN] for row in theirs}
        for number, row in enumerate(theirs, 1):
            # A site has one ledger for all its jobs, the coordinator one for each.
            meant = row["site"] in sites and (len(sites) == 1 or row["job"] in jobs)
            if meant and row.get(HEAD, row[CHAIN]) not in known:
                raise DataError(
                    f"{path} does not match {other}, line {number}, which has its hash at the end "
                    f"of job {row['job']}: lines are missing at its end, or all were rewritten."
                )
    return len(rows)


def _whole(path: Path) -> list[Mapping[str, Any]]:
    """The lines of a ledger in which each hash follows from the lines before it."""
    rows, before = list(read(path)), _BEGIN
    for number, row in enumerate(rows, 1):
        (expected,) = _chained([{k: v for k, v in row.items() if k != CHAIN}], before)
        before = expected[CHAIN]
        if row.get(CHAIN) != before:
            raise DataError(
                f"{path}, line {number}: it was changed, or a line before it was taken out."
            )
    return rows


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
    unclosed: list[str] = field(default_factory=list)  # sites that did not report a hash

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
