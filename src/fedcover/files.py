"""Files that are written whole, whenever a process is killed, and read only if they have an end."""

import os
import secrets
from pathlib import Path

from fedcover.errors import DataError, UsageError


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


def folder_above(path: Path) -> Path:
    """The closest folder above it that exists, in which the rest can be made."""
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise UsageError(f"{parent} is a file; {path} cannot be made in it.")
    return parent


def check_regular(path: Path) -> None:
    """Refuse a folder, pipe or device, also behind a link; what is not there is left to opening.

    A pipe would be waited for, and a device never ends.
    """
    try:
        other = path.exists() and not path.is_file()
    except OSError:  # a folder on the way is closed to us, which opening the file will say
        return
    if other:
        raise DataError(f"{path} is not a regular file.")
