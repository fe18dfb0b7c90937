"""What a process must know to go on after it was killed: arrays on disk, one file a name."""

import io
from collections import UserDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message
from fedcover.files import write_whole

Arrays = dict[str, NDArray[Any]]
Held = TypeVar("Held")


class Checkpoint:
    """A folder of named sets of arrays; each is replaced whole, so that it is never half-written.

    Without a folder it forgets: a conversation then starts anew.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def read(self, name: str) -> Arrays | None:
        """What was last written under this name."""
        if self._folder is None:
            return None
        try:
            with np.load(_file(self._folder, name), allow_pickle=False) as stored:
                return dict(stored)
        except FileNotFoundError:
            return None

    def write(self, name: str, arrays: Message) -> None:
        """Replace what stands under this name."""
        if self._folder is not None:
            buffer = io.BytesIO()
            np.savez(buffer, **arrays)  # type: ignore[arg-type]
            write_whole(_file(self._folder, name), buffer.getvalue())

    def first(self, name: str, arrays: Message) -> Message:
        """What was first written under this name: these arrays, unless there are some already."""
        if (found := self.read(name)) is not None:
            return found
        self.write(name, arrays)
        return arrays


def _file(folder: Path, name: str) -> Path:
    return folder / f"{quote(name, safe='')}.npz"


class OnDisk(UserDict[str, Held]):
    """What is known of every part of a job, in memory and on disk."""

    def __init__(
        self,
        memory: Checkpoint,
        prefix: str,
        packed: Callable[[Any], Message] = dict,
        unpacked: Callable[[Message], Any] = dict,
    ) -> None:
        super().__init__()
        self._memory, self._prefix = memory, prefix
        self._packed, self._unpacked = packed, unpacked

    __contains__ = Mapping.__contains__  # by asking for it, since it may be on disk alone

    def __missing__(self, part: str) -> Held:
        found = self._memory.read(f"{self._prefix} {part}")
        if found is None:
            raise KeyError(part)
        return self.data.setdefault(part, self._unpacked(found))

    def __setitem__(self, part: str, value: Held) -> None:
        self._memory.write(f"{self._prefix} {part}", self._packed(value))
        self.data[part] = value
