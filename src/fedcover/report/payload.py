"""All that a page shows, as one JSON value: columns, integers where they do, rounded numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from fedcover.config import recipe_of
from fedcover.conformal import RULES
from fedcover.report.cells import KINDS, SETTING, Cell, cells, is_option, view_key, views
from fedcover.report.explorer import ABSENT, explorer
from fedcover.report.folder import Stored
from fedcover.report.traffic import traffic
from fedcover.report.verdict import grid_cards, recommended, run_cards

DIGITS = 5
_KEY = ["method", "score", "quantile", "alpha", "seed"]
COLUMNS = (
    *SETTING,
    "method",
    "score",
    "quantile",
    "alpha",
    "seeds",
    "n_calibration",
    "n_test",
    "set_size",
    "set_size_sd",
    "coverage",
    "coverage_sd",
    "coverage_se",
    "low",
    "high",
    "status",
    "min_client_coverage",
    "singleton_rate",
    "empty_rate",
    "accuracy",
)
WORDS = {
    "loc": "every client trains alone",
    "fed": "FedAvg: one shared model",
    "gen": "FedAvg on graphs with generated neighbours",
    "fedsage": "FedAvg with GraphSAGE",
    "fedsage+": "FedAvg on graphs mended by a neighbour generator",
    "restored": "a mark, not an option: clients are given their cut neighbours back",
    "central": "a mark, not an option: one owner of the whole graph",
}
PARTS = {
    "prox": "steps held near the shared model",
    "prior": "each client's label mix",
    "tuned": "local training after the shared one",
    "mix": "a mixture of shared, tuned and local models",
}


def run_payload(stored: Stored) -> dict[str, Any]:
    """A run's page; everything comes from the files of its folder."""
    setting = [
        pl.lit("").alias("preset"),
        pl.lit("").alias("variant"),
        pl.lit(stored.results["dataset"][0]).alias("dataset"),
        pl.lit(stored.results["clients"][0]).alias("clients"),
    ]
    spread = stored.groups.filter(pl.col("kind") == "all").select(*_KEY, "coverage_sd")
    rows = stored.results.join(spread, on=_KEY, how="left", maintain_order="left")
    info = stored.info
    found = cells(
        rows.with_columns(setting[:2]),
        stored.groups.with_columns(setting),
        int(info.get("config", {}).get("resplits", 100)),
        _calibrate(info),
    )
    labels = _labels(stored)
    return {
        "kind": "run",
        "labels": labels,
        **_tables(found),
        "verdicts": {view_key(key): run_cards(own, found) for key, own in views(found).items()},
        "explorer": explorer(stored, labels),
        "calibrate": _calibrate(info),
        "absent": ABSENT,
        "traffic": traffic(stored.ledger),
        "partition": stored.results["partition"][0],
        "first_seed": stored.results["seed"][0],
        "graph": info.get("graph", {}),
        "cut_edges": (info.get("cut_edges") or [None])[0],
        "notes": info.get("notes", []),
        "config": info.get("config", {}),
        "versions": {"fedcover": info.get("fedcover"), **info.get("versions", {})},
        "hardware": info.get("hardware", {}),
        "seconds": info.get("seconds", {}),
    }


def grid_payload(
    rows: pl.DataFrame, published: pl.DataFrame | None, notes: Sequence[str], resplits: int
) -> dict[str, Any]:
    """A grid's page: many settings, no single nodes."""
    inside = rows.select(*SETTING, *_KEY, "groups").explode("groups").drop_nulls("groups")
    groups = inside.unnest("groups")
    found = cells(rows.drop("groups"), groups, resplits)
    return {
        "kind": "grid",
        **_tables(found),
        "verdicts": {"": grid_cards(found)},
        "best": {
            view_key(key): best["method"]
            for key, own in views(found).items()
            if (best := recommended(own))
        },
        "published": published.to_dicts() if published is not None else [],
        "partition": rows["partition"][0] if len(rows) else "",
        "notes": list(notes),
    }


def dumps(payload: dict[str, Any]) -> str:
    """JSON that may stand inside a script element: no tag can begin in it."""
    # What is said of single nodes is rounded already, and by far the largest part.
    shown = {key: held if key == "explorer" else _rounded(held) for key, held in payload.items()}
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _tables(found: Sequence[Cell]) -> dict[str, Any]:
    methods = list(dict.fromkeys(cell["method"] for cell in found))
    names: dict[str, int] = {}
    return {
        "methods": [  # marks come after options; otherwise the run's own order stays
            _method(name) for name in sorted(methods, key=is_option, reverse=True)
        ],
        "rules": {
            rule: RULES[rule].guarantee
            for rule in dict.fromkeys(cell["quantile"] for cell in found)
        },
        "cells": {name: [cell[name] for cell in found] for name in COLUMNS}
        | {"alpha": [view_key([cell["alpha"]]) for cell in found]},
        "groups": {kind: [_packed(cell, kind, names) for cell in found] for kind in KINDS},
        "worst": [_worst(cell) for cell in found],
        "names": list(names),
    }


def _method(name: str) -> dict[str, Any]:
    recipe = recipe_of(name)
    parts = [part for part in PARTS if part in str(recipe).removeprefix(recipe.base).split("+")]
    words = ", ".join([WORDS[recipe.base], *(PARTS[part] for part in parts)])
    return {"name": name, "option": is_option(name), "words": words}


def _packed(cell: Cell, kind: str, names: dict[str, int]) -> list[list[Any]]:
    """A cell's groups as columns: name, n, coverage, size, and seed (clients) or both spreads."""
    rows = cell["groups"].get(kind, [])
    group = [names.setdefault(row["group"], len(names)) for row in rows]
    fields = ["n_test", "coverage", "set_size"]
    fields += ["seed"] if kind == "client" else ["coverage_sd", "set_size_sd"]
    short = {"n_test": 1, "coverage": 4, "set_size": 3, "coverage_sd": 4, "set_size_sd": 3}
    return [
        group,
        *([_round(row[name], short.get(name, 0)) for row in rows] for name in fields),
    ]


def _worst(cell: Cell) -> list[Any] | None:
    worst = cell["worst"]
    if worst is None:
        return None
    return [worst["group"], worst["seed"], worst["n_test"], worst["coverage"]]


def _calibrate(info: dict[str, Any]) -> str:
    return str(info.get("config", {}).get("calibrate", "pooled"))


def _labels(stored: Stored) -> list[str]:
    """Label names in the graph's order, which is the order of the lists in scores.parquet."""
    known = stored.info.get("graph", {}).get("label_names")
    if known:
        return [str(name) for name in known]
    classes = stored.groups.filter(pl.col("kind") == "class")["group"].unique(maintain_order=True)
    return classes.to_list()


def _round(value: Any, digits: int) -> Any:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = round(value, digits)
    return int(short) if short == int(short) else short


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(held) for held in value]
    return _round(value, DIGITS)
