"""Files that are whole or as they were before, whenever a process is killed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: bytes, folder: Path | None = None) -> None:
    """Write beside, or into another folder of the same disk, and rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = (folder or path.parent) / f".{path.name}-{secrets.token_hex(4)}"
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
