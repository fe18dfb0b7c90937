"""Where results come from: code, machine, and where the time went."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from fedcover import __version__
from fedcover.paper.version import code_version
from fedcover.run_folder import hardware, versions


def provenance(preset: str, rows: pl.DataFrame) -> dict[str, Any]:
    """What ``about.json`` holds. The commit is the one whose command wrote the rows."""
    cells = rows.unique("cell", maintain_order=True)
    by = cells.group_by("dataset", "method", maintain_order=True)
    spent = pl.col("cell_seconds", "cell_cpu_seconds").sum().round(1)
    seconds = by.agg(spent, pl.len().alias("cells"))
    return {
        "fedcover": __version__,
        "commit": commit(),
        "code": code_version(),
        "preset": preset,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "hardware": {**hardware(), "processor": _processor()},
        "seconds": round(float(cells["cell_seconds"].sum()), 1),
        "cpu_seconds": round(float(cells["cell_cpu_seconds"].sum()), 1),
        "by_graph_and_method": seconds.to_dicts(),
    }


def commit() -> str:
    """The commit of the sources, if they are a clone; with a + if they were changed since."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()

    try:
        changed = "+" if git("status", "--porcelain", "--", str(here.parent)) else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
