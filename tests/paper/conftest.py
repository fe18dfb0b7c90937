"""A grid that takes seconds: two clients of Cora, two rounds, few re-splits."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from fedcover.paper.definition import Definition, read_all
from fedcover.paper.rows import ROWS

SETTINGS = """
[settings]
rounds = 2
hidden = 4
resplits = 5
prototypes = [2]
shares = [0.01]
"""
SIZES = """
title = "Sizes"
kind = "cells"
graphs = ["cora"]
clients = [2, 3]
levels = [0.9, 0.8]
seeds = 2
published = "main"
"""
PRESETS = """
[paper]
methods = ["loc", "fed"]
scores = ["aps-det"]
quantiles = ["average"]

[default]
methods = ["loc", "fed", "fed+prior"]
scores = ["lac"]
quantiles = ["theorem1"]
against = { "fed+prior" = "gen" }
"""
FIGURE = """
[figure]
x = "clients"
y = "set_size"
series = "method"
panels = "level"
"""
COVERAGE = """
title = "Coverage"
kind = "cells"
graphs = ["cora"]
clients = [3]
levels = [0.9, 0.5]
seeds = 2

[paper]
methods = ["fed"]
scores = ["aps-det", "lac"]
quantiles = ["average", "tdigest"]

[default]
methods = ["fed"]
scores = ["aps"]
quantiles = ["theorem1", "average"]

[figure]
x = "level"
y = "coverage"
series = "quantile"
panels = "score"
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The definitions ``sizes`` and ``coverage``, which share the models of ``fed``."""
    where = tmp_path_factory.mktemp("definitions")
    (where / "sizes.toml").write_text(SIZES + SETTINGS + PRESETS + FIGURE)
    (where / "coverage.toml").write_text(COVERAGE + SETTINGS)
    return where


@pytest.fixture(scope="session")
def known(folder: Path) -> dict[str, Definition]:
    return read_all(folder)


BLANK = {
    "preset": "default", "variant": "", "dataset": "cora", "clients": 3, "partition": "metis",
    "method": "fed", "model": "gcn", "score": "lac", "quantile": "theorem1", "alpha": 0.1,
    "seed": 0, "n_calibration": 997, "n_test": 1000, "q_hat": 0.5, "coverage": 0.9,
    "coverage_split": 0.9,
    "set_size": 2.0, "singleton_rate": 0.5, "empty_rate": 0.0, "min_client_coverage": 0.85,
    "class_coverage_gap": 0.1, "accuracy": 0.8, "train_seconds": 1.0, "coverage_sd": 0.01,
    "resplits": 100, "prototypes": None, "groups": [], "sent": [], "cell_seconds": 1.0,
    "cell_cpu_seconds": 1.0, "cell": "k", "code": "c",
}  # fmt: skip


@pytest.fixture
def frame() -> Callable[..., pl.DataFrame]:
    """``frame({"seed": 0}, {"seed": 1})``: rows of the store; the rest is nothing in particular."""

    def make(*rows: dict[str, object]) -> pl.DataFrame:
        assert all(set(row) <= set(BLANK) for row in rows)
        return pl.DataFrame([BLANK | row for row in rows], schema=ROWS)

    return make
