"""All that a page shows, as one JSON value: columns, integers where they do, rounded numbers."""

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
from fedcover.report.summary import cut_share, with_spread
from fedcover.report.verdict import grid_cards, recommended, run_cards
from fedcover.tables import KEY

DIGITS = 5
INNER = ("below", "option", "partition", "worst", "worst_class", "groups")
"""Of a cell, what the page's table of cells does without."""
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
    "neighbours": "means of nodes' neighbours at other clients, where both ends know the edges",
    "prox": "steps held near the shared model",
    "prior": "each client's label mix",
    "tuned": "local training after the shared one",
    "mix": "a mixture of shared, tuned and local models",
}


def run_payload(stored: Stored) -> dict[str, Any]:
    """A run's page; everything comes from the files of its folder."""
    info, results, groups = stored.info, stored.results, stored.groups
    config, labels = info.get("config", {}), _labels(stored)
    calibrate = str(config.get("calibrate", "pooled"))
    single = {"preset": pl.lit(""), "variant": pl.lit("")}
    whose = {name: pl.lit(results[name][0]) for name in ("dataset", "clients")}
    rows = with_spread(results, groups).with_columns(**single)
    groups = groups.with_columns(**single, **whose)
    # Over a network there is one split, and no other to compare it with.
    resplits = 1 if "federation" in info else int(config.get("resplits", 100))
    found = cells(rows, groups, resplits, info)
    return {
        "kind": "run",
        "labels": labels,
        **_tables(found),
        "verdicts": {
            view_key(key): run_cards(own, found, info) for key, own in views(found).items()
        },
        "measured": bool(results["n_test"][0]),
        "explorer": explorer(stored, labels),
        "calibrate": calibrate,
        "absent": ABSENT,
        "traffic": _traffic(stored.ledger),
        "partition": results["partition"][0],
        "first_seed": results["seed"][0],
        "graph": info.get("graph", {}),
        "cut_share": cut_share(info),
        "notes": info.get("notes", []),
        "config": config,
        "versions": {"fedcover": info.get("fedcover"), **info.get("versions", {})},
        "hardware": info.get("hardware", {}),
        "seconds": info.get("seconds", {}),
    }


def _traffic(ledger: pl.DataFrame | None) -> dict[str, Any] | None:
    """The ledger by method: mean bytes a seed of each kind, up and down; and each client's, first
    seed (docs/communication.md)."""
    if ledger is None:
        return None
    sent = ledger.with_columns((pl.col("bytes") * pl.col("rounds")).alias("sent"))
    seeds = max(sent["seed"].n_unique(), 1)
    first = sent.filter(pl.col("seed") == pl.col("seed").min())
    return {"kinds": _two_ways(sent, "kind", seeds), "clients": _two_ways(first, "client", 1)}


def _two_ways(sent: pl.DataFrame, by: str, seeds: int) -> dict[str, list[list[Any]]]:
    up, down = (
        pl.col("sent").filter(pl.col("direction") == way).sum().alias(way) for way in ("up", "down")
    )
    found: dict[str, list[list[Any]]] = {}
    for method, *row in sent.group_by("method", by, maintain_order=True).agg(up, down).iter_rows():
        found.setdefault(method, []).append([row[0], *(round(count / seeds) for count in row[1:])])
    return found


def grid_payload(
    rows: pl.DataFrame, published: pl.DataFrame | None, notes: Sequence[str], resplits: int
) -> dict[str, Any]:
    """A grid's page: many settings, no single nodes."""
    inside = rows.select(*SETTING, *KEY, "groups").explode("groups").drop_nulls("groups")
    found = cells(rows.drop("groups"), inside.unnest("groups"), resplits)
    leading = [(key, recommended(own)) for key, own in views(found).items()]
    return {
        "kind": "grid",
        "measured": True,
        **_tables(found),
        "verdicts": {"": grid_cards(found)},
        "best": {view_key(key): best["method"] for key, best in leading if best},
        "published": published.to_dicts() if published is not None else [],
        "partition": rows["partition"][0],
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
        # Marks come after options; otherwise the run's own order stays.
        "methods": [_method(name) for name in sorted(methods, key=is_option, reverse=True)],
        "rules": {cell["quantile"]: RULES[cell["quantile"]].guarantee for cell in found},
        "cells": {
            name: [view_key([cell[name]]) if name == "alpha" else cell[name] for cell in found]
            for name in found[0]
            if name not in INNER
        },
        "groups": {kind: [_packed(cell, kind, names) for cell in found] for kind in KINDS},
        "worst": [cell["worst"] and list(cell["worst"].values()) for cell in found],
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
    digits = {"n_test": 1, "coverage": 4, "set_size": 3}
    digits |= {"seed": 0} if kind == "client" else {"coverage_sd": 4, "set_size_sd": 3}
    return [group, *([_round(row[name], few) for row in rows] for name, few in digits.items())]


def _labels(stored: Stored) -> list[str]:
    """Label names in the graph's order, which is the order of the lists in scores.parquet."""
    if known := stored.info.get("graph", {}).get("label_names"):
        return [str(name) for name in known]
    classes = stored.groups.filter(pl.col("kind") == "class")["group"]
    return classes.unique(maintain_order=True).to_list()


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
