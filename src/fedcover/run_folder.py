"""A run folder on disk: written beside and renamed, so that it is whole or absent."""

import json
import math
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedcover.errors import DataError, UsageError
from fedcover.files import folder_above
from fedcover.tables import DRAWING, MARK, PAGE, holds_run

AS_TEXT = ("results", "groups", "thresholds")  # tables to open anywhere; others are Parquet
FILES = (
    *(f"{name}.csv" for name in AS_TEXT),
    *(f"{name}.parquet" for name in ("sets", "ledger", *DRAWING)),
    *("ledger.jsonl", MARK, PAGE),  # the first of a federation over a network
)
FOLDERS = ("model",)


def check_target(folder: Path) -> None:
    """Refuse, before any work, a folder that could not be written or holds something else."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; a run needs a folder of its own.")
    held = sorted(folder.iterdir()) if folder.exists() else []
    for path in held:  # the folder is replaced whole: nothing else may be in it
        if path.name not in (FOLDERS if path.is_dir() else FILES):
            raise UsageError(
                f"{folder} exists and is not a run folder: it holds {path.name}, which would be "
                "lost; choose another folder."
            )
    if held and not holds_run(folder):
        raise UsageError(
            f"{folder} exists and is not a run folder: it holds {held[0].name}, but no {MARK} "
            "that fedcover wrote; choose another folder."
        )
    if Path.cwd().is_relative_to(folder.resolve()):
        raise UsageError(f"{folder} is the folder you are in; a run needs a folder of its own.")
    parent = folder_above(folder)
    try:  # only the attempt tells (quotas, mounts)
        Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent)).rmdir()
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {parent}: {error.strerror}.") from error


def write_run(
    folder: Path,
    info: dict[str, Any],
    finish: Callable[[Path], object] | None = None,
    copies: Mapping[str, Path] | None = None,
    **tables: pl.DataFrame | None,
) -> Path:
    """Write all files beside the folder, then put them in its place.

    ``finish`` writes what is made of the tables, when these are in the folder that it is called
    with; ``copies`` are further files. An earlier run is moved away, not deleted, until the new one
    stands: whatever goes wrong, and whenever a user interrupts, one of them is there whole.
    """
    check_target(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror}.") from error
    fresh, earlier = beside / "fresh", beside / "earlier"
    try:
        fresh.mkdir()
        for name, table in tables.items():
            if table is not None and name in AS_TEXT:
                table.write_csv(fresh / f"{name}.csv")
            elif table is not None:
                table.write_parquet(fresh / f"{name}.parquet")
        for name, source in (copies or {}).items():
            shutil.copyfile(source, fresh / name)
        (fresh / MARK).write_text(json.dumps(_plain(info), indent=2) + "\n", encoding="utf-8")
        if finish:
            finish(fresh)
        if folder.exists():
            folder.rename(earlier)
        fresh.rename(folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        if earlier.exists() and not folder.exists():
            earlier.rename(folder)
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _plain(value: Any) -> Any:
    """JSON has no infinity, which is spelt out, and no numpy."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def versions() -> dict[str, str]:
    """Of Python and the libraries that shape results."""
    found = {"python": platform.python_version()}
    numerics = ("numpy", "scipy", "torch", "torch_geometric")
    for package in (*numerics, "pymetis", "scikit-learn", "opacus", "polars"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def hardware() -> dict[str, Any]:
    """What the run had to compute with."""
    import torch

    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
