"""Cells of a page: one for each setting, method, score, rule and level, its seeds summed up.

What counts as "the guarantee held" is the run's own rule: the mean coverage lies in the theorem's
band, up to three standard errors of that mean; where scores tie, the upper end does not apply
(design 5.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fedcover.conformal import RULES, coverage_band
from fedcover.errors import DataError
from fedcover.experiment.evaluation import base_score
from fedcover.experiment.recipes import recipe_of
from fedcover.experiment.summary import CELL, STANDARD_ERRORS, summarise

SETTING = ("preset", "variant", "dataset", "clients")
VIEW = (*SETTING, "score", "quantile", "alpha")
MARKS = ("central", "restored")  # what no party of a federation has: marks, not options
KINDS = ("client", "class", "position", "degree", "size")
MOST_CLIENTS = 60  # rows of a chart; of more clients, the worst are kept

Cell = dict[str, Any]


def is_option(method: str) -> bool:
    """Whether a federation could take this method."""
    return recipe_of(method).base not in MARKS


def band(cell: Mapping[str, Any], n: float) -> tuple[float | None, float | None]:
    """Where Theorem 1 promises the mean coverage; None: no promise, or no upper end.

    The rule ``mixture`` has an upper end too, but it needs each client's numbers, which tables of
    results do not hold.
    """
    if not RULES[cell["quantile"]].guarantee:
        return None, None
    low, high = coverage_band(cell["alpha"], round(n), cell["clients"])
    ties = base_score(cell["score"]).ties
    return low, None if ties or cell["quantile"] == "mixture" else high


def status(cell: Mapping[str, Any]) -> str:
    """``none`` (no guarantee), ``below``, ``above`` or ``inside``."""
    slack = STANDARD_ERRORS * cell["coverage_se"]
    if cell["low"] is None:
        return "none"
    if cell["coverage"] < cell["low"] - slack:
        return "below"
    if cell["high"] is not None and cell["coverage"] > cell["high"] + slack:
        return "above"
    return "inside"


def cells(rows: pl.DataFrame, groups: pl.DataFrame, resplits: int) -> list[Cell]:
    """All cells, in the order of the rows.

    ``rows`` are those of ``results.csv`` with the columns of ``SETTING`` and ``coverage_sd``;
    ``groups`` those of ``groups.csv`` with the columns of ``SETTING``.
    """
    key = [*SETTING, *CELL]
    twice = rows.filter(rows.select(*key, "seed").is_duplicated())
    if len(twice):
        named = ", ".join(f"{name} {twice[name][0]}" for name in (*key, "seed"))
        raise DataError(f"The results hold two rows for {named}; each may occur once.")
    held = {
        (*part, str(kind)): table
        for (*part, kind), table in groups.partition_by(
            [*key, "kind"], as_dict=True, maintain_order=True
        ).items()
    }
    found = []
    for setting, part in rows.partition_by(SETTING, as_dict=True, maintain_order=True).items():
        spread = part.select(*CELL, "seed", "coverage_sd").with_columns(pl.lit("all").alias("kind"))
        table = summarise(part.drop("coverage_sd"), spread, resplits)
        means = part.group_by(CELL, maintain_order=True).agg(
            pl.col("coverage").std().alias("coverage_sd"),
            pl.col("n_calibration", "n_test", "singleton_rate", "empty_rate").mean(),
            pl.col("partition").first(),
        )
        joined = table.join(means, on=CELL, maintain_order="left")
        for row in joined.iter_rows(named=True):
            cell: Cell = {**dict(zip(SETTING, setting, strict=True)), **row}
            cell["low"], cell["high"] = band(cell, cell["n_calibration"])
            cell["status"] = status(cell)
            cell["option"] = is_option(cell["method"])
            named_key = tuple(cell[name] for name in key)
            cell["groups"] = {
                kind: _grouped(kind, held[*named_key, kind])
                for kind in KINDS
                if (*named_key, kind) in held
            }
            cell["worst"] = worst_client(cell)
            found.append(cell)
    return found


def _grouped(kind: str, table: pl.DataFrame) -> list[dict[str, Any]]:
    """A kind's groups: means over seeds with their spread; clients seed by seed.

    A client's number is not the same nodes in another seed, so clients are not averaged here.
    """
    table = table.with_columns(pl.col("coverage", "set_size").fill_nan(None))
    columns = ["group", "n_test", "coverage", "set_size"]
    if kind == "client":
        table = table.select("seed", *columns)
        if table["group"].n_unique() > MOST_CLIENTS:
            table = table.sort("coverage", maintain_order=True).head(MOST_CLIENTS)
        return table.to_dicts()
    found = table.group_by("group", maintain_order=True).agg(
        pl.col("n_test").mean(),
        pl.col("coverage", "set_size").mean(),
        pl.col("coverage").std().alias("coverage_sd"),
        pl.col("set_size").std().alias("set_size_sd"),
        pl.len().alias("seeds"),
    )
    return found.to_dicts()


def worst_client(cell: Cell) -> dict[str, Any] | None:
    """The client that is covered least: over seeds if clients are given, else of one seed's cut."""
    held: list[dict[str, Any]] = cell["groups"].get("client", [])
    rows = [row for row in held if row["coverage"] is not None]
    if not rows:
        return None
    if cell["partition"] == "given":
        by_name: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_name.setdefault(row["group"], []).append(row)
        rows = [
            {
                "group": name,
                "seed": None,
                "n_test": math.fsum(row["n_test"] for row in own) / len(own),
                "coverage": math.fsum(row["coverage"] for row in own) / len(own),
            }
            for name, own in by_name.items()
        ]
    return min(rows, key=lambda row: row["coverage"])


def view_key(view: Sequence[Any]) -> str:
    """A view, or a cell, as the page's script spells it: no number is rounded."""
    parts = (
        np.format_float_positional(part, trim="-") if isinstance(part, float) else str(part)
        for part in view
    )
    return "|".join(parts)


def views(found: Sequence[Cell]) -> dict[tuple[Any, ...], list[Cell]]:
    """The cells that are seen together, by ``VIEW``."""
    result: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in found:
        result.setdefault(tuple(cell[name] for name in VIEW), []).append(cell)
    return result
