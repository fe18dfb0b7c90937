"""Cells of a page: one for each setting, method, score, rule and level, its seeds summed up."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fedcover.config import recipe_of
from fedcover.errors import DataError
from fedcover.report.summary import CELL, Info, summarise_rows

SETTING = ("preset", "variant", "dataset", "clients")
VIEW = (*SETTING, "score", "quantile", "alpha")
MARKS = ("central", "restored")  # what no party of a federation has: marks, not options
KINDS = ("client", "class", "group", "position", "degree", "size")
MOST_CLIENTS = 60  # rows of a chart; of more clients, the worst are kept

Cell = dict[str, Any]


def is_option(method: str) -> bool:
    """Whether a federation could take this method."""
    return recipe_of(method).base not in MARKS


def cells(
    rows: pl.DataFrame, groups: pl.DataFrame, resplits: int, info: Info | None = None
) -> list[Cell]:
    """All cells, in the order of the rows.

    ``rows`` are those of ``results.csv`` with the columns of ``SETTING`` and ``coverage_sd``;
    ``groups`` those of ``groups.csv`` with the columns of ``SETTING``; ``info`` is ``run.json``.
    """
    key = [*SETTING, *CELL]
    groups = groups.with_columns(pl.col("coverage", "set_size").fill_nan(None))
    twice = rows.filter(rows.select(*key, "seed").is_duplicated())
    if len(twice):
        named = ", ".join(f"{name} {twice[name][0]}" for name in (*key, "seed"))
        raise DataError(f"The results hold two rows for {named}; each may occur once.")
    held = groups.partition_by([*key, "kind"], as_dict=True, maintain_order=True)
    rows = pl.concat(rows.partition_by(SETTING, maintain_order=True))  # a setting's stay together
    rows = rows.with_columns(pl.lit(resplits).alias("resplits"))
    found = []
    for cell in summarise_rows(rows, [*key, "partition"], info).iter_rows(named=True):
        place = tuple(cell[name] for name in key)
        tables = {kind: held[*place, kind] for kind in KINDS if (*place, kind) in held}
        worst = worst_group(tables.get("client"), over_seeds=cell["partition"] == "given")
        by_kind = {
            kind: _clients(table, worst) if kind == "client" else _grouped(table)
            for kind, table in tables.items()
        }
        cell |= {"option": is_option(cell["method"]), "worst": worst, "groups": by_kind}
        cell["worst_class"] = worst_group(tables.get("class"), over_seeds=True)
        found.append(cell)
    return found


def _grouped(table: pl.DataFrame) -> list[dict[str, Any]]:
    """A kind's groups: means over seeds with their spread."""
    found = table.group_by("group", maintain_order=True).agg(
        pl.col("n_test", "coverage", "set_size").mean(),
        pl.col("coverage", "set_size").std().name.suffix("_sd"),
    )
    return found.to_dicts()


def _clients(table: pl.DataFrame, worst: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Clients seed by seed; of very many, all rows of those that are covered least over seeds.

    A client's number is not the same nodes in another seed, so clients are not averaged here. That
    is also why the worst of one seed may be well covered over seeds: it is kept in any case.
    """
    table = table.select("seed", "group", "n_test", "coverage", "set_size")
    means = table.group_by("group", maintain_order=True).agg(pl.col("coverage").mean())
    if len(means) > MOST_CLIENTS:
        is_worst = pl.col("group") == (worst["group"] if worst else "")
        order = means.sort(~is_worst, "coverage", nulls_last=True, maintain_order=True)
        table = table.filter(pl.col("group").is_in(order["group"].head(MOST_CLIENTS).implode()))
    return table.to_dicts()


def worst_group(table: pl.DataFrame | None, *, over_seeds: bool) -> dict[str, Any] | None:
    """The group that is covered least: over seeds, or of one seed, whose cut has its own clients.

    ``table`` holds one cell's rows of a kind; groups without test nodes do not count. ``among`` is
    how many were looked at, those of every seed where seeds have clients of their own.
    """
    if table is None:
        return None
    known = table.select("group", "seed", "n_test", "coverage").drop_nulls("coverage")
    if over_seeds:
        known = known.group_by("group", maintain_order=True).agg(
            pl.lit(None).alias("seed"), pl.col("n_test", "coverage").mean()
        )
    least = known["coverage"].arg_min()
    return None if least is None else known.row(least, named=True) | {"among": len(known)}


def view_key(view: Sequence[Any]) -> str:
    """A view, or a cell, as the page's script spells it: no number is rounded."""
    return "|".join(
        np.format_float_positional(part, trim="-") if isinstance(part, float) else str(part)
        for part in view
    )


def views(found: Sequence[Cell]) -> dict[tuple[Any, ...], list[Cell]]:
    """The cells that are seen together, by ``VIEW``."""
    result: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in found:
        result.setdefault(tuple(cell[name] for name in VIEW), []).append(cell)
    return result
