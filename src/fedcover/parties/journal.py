"""The ledger of a real federation: one JSON line an array that travelled, written as it happens.

A site writes what left it before it leaves, and what reached it; the coordinator writes the same
from its side. ``fedcover ledger show`` reads either.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcover.conformal.protocol import Direction, Message
from fedcover.errors import DataError

FILE = "ledger.jsonl"
LONGEST = 1 << 16  # bytes of a line
FIELDS = ("time", "job", "site", "direction", "phase", "round", "name", "type", "shape", "bytes")


class Journal:
    """Appends to a ledger file; without one, it keeps the lines in ``entries``."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries: list[dict[str, Any]] = []

    def record(
        self,
        job: str,
        site: str,
        direction: Direction,
        place: tuple[str, str, int],
        message: Message,
    ) -> None:
        """Write down every array of a message; a message without arrays is a line, too."""
        phase, verb, round_ = place
        head = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "job": job,
            "site": site,
            "direction": direction,
            "phase": phase or verb,
            "round": round_,
        }
        rows = [
            {
                **head,
                "name": name,
                "type": str(array.dtype),
                "shape": list(array.shape),
                "bytes": array.nbytes,
            }
            for name, array in message.items()
        ] or [{**head, "name": "", "type": "", "shape": [], "bytes": 0}]
        if self._path is None:
            self.entries += rows
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        _append(self._path, lines.encode())


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
        lines = path.read_text(encoding="utf-8").splitlines()
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
    """By job, site, phase, direction and array: messages, bytes, and the last shape."""
    sums: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[k] for k in ("job", "site", "phase", "direction", "name", "type"))
        entry = sums.setdefault(
            key,
            dict(zip(("job", "site", "phase", "direction", "name", "type"), key, strict=True))
            | {"messages": 0, "bytes": 0},
        )
        entry["messages"] += 1
        entry["bytes"] += row["bytes"]
        entry["shape"] = row["shape"]
    return list(sums.values())
