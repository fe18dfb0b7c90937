"""What a process must know to go on after it was killed: arrays on disk, one file a name."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fedcover.files import write_whole

Arrays = dict[str, NDArray[Any]]


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
            with np.load(self._path(name), allow_pickle=False) as stored:
                return {key: stored[key] for key in stored.files}
        except FileNotFoundError:
            return None

    def write(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace what stands under this name."""
        if self._folder is None:
            return
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_whole(self._path(name), buffer.getvalue())

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{quote(name, safe='')}.npz"
