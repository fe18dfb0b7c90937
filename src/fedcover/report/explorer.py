"""The first seed's nodes for a page: where they are drawn, and why their sets are what they are.

Numbers are rounded for the page, sets are not: they are those of ``sets.parquet``, each different
one spelt out once.
"""

from typing import Any

import numpy as np
import polars as pl

from fedcover.report.cells import view_key
from fedcover.report.folder import Stored

PLACES = 1000  # steps of a drawing from −1 to 1, each way
SHARES = 10_000  # steps of a probability
STEPS = 100_000  # steps of a score
MOST_NUMBERS = 600_000  # probabilities and scores on a page: about 3 MB

CELL = ("method", "score", "quantile", "alpha")

ABSENT = (
    "This run folder holds no nodes.parquet, edges.parquet and scores.parquet: an earlier version "
    "of fedcover wrote it. Run it again to see the cut graph and single nodes."
)


def explorer(stored: Stored, labels: list[str]) -> dict[str, Any] | None:
    """Nodes, edges, probabilities, scores, sets and thresholds in columns; None for an old run."""
    if not stored.drawing:
        return None
    nodes, edges = stored.drawing["nodes"], stored.drawing["edges"]
    clients = nodes["client"].unique(maintain_order=True).to_list()
    if all(name.isdecimal() for name in clients):
        clients.sort(key=int)
    index = {name: i for i, name in enumerate(nodes["node"].to_list())}
    roles = ["training", "validation", "calibration", "test", "unlabelled"]
    return {
        "clients": clients,
        "roles": roles,
        "ids": nodes["node"].to_list(),
        "client": _codes(nodes["client"], clients),
        "role": _codes(nodes["role"], roles),
        **({"group": nodes["group"].to_list()} if "group" in nodes.columns else {}),
        "label": _codes(nodes["label"], labels),
        "boundary": nodes["boundary"].cast(pl.Int8).to_list(),
        "degree": nodes["degree"].to_list(),
        "lost": nodes["lost"].to_list(),
        "x": _steps(nodes["x"], PLACES),
        "y": _steps(nodes["y"], PLACES),
        "source": [index[node] for node in edges["source"]],
        "target": [index[node] for node in edges["target"]],
        "cut": edges["cut"].cast(pl.Int8).to_list(),
        "known": stored.info.get("config", {}).get("cut_edges") == "known",  # to clients
        **_scored(stored.drawing["scores"], stored.drawing["sets"], index, labels),
        "thresholds": _first_thresholds(stored, labels),
    }


def _scored(
    scores: pl.DataFrame, sets: pl.DataFrame, index: dict[str, int], labels: list[str]
) -> dict[str, Any]:
    """Nodes with sets: ``explained`` are their positions; all further lists are parallel to it."""
    # The same number of nodes for all methods, so that a list's place says which node it is.
    tables = scores.partition_by(["method", "score"], as_dict=True, maintain_order=True)
    room = MOST_NUMBERS // max(1, 2 * len(tables) * len(labels))
    explained = scores.select("node").unique(maintain_order=True)
    explained = explained.gather_every(max(1, -(-len(explained) // max(room, 1))))
    probs: dict[str, list[int | None]] = {}
    values: dict[str, list[int | None]] = {}
    for (method, score), table in tables.items():
        own = explained.join(table, on="node", maintain_order="left")
        if str(method) not in probs:
            probs[str(method)] = _steps(own["probs"].explode(), SHARES)
        values[f"{method}|{score}"] = _steps(own["scores"].explode(), STEPS)
    patterns: dict[tuple[int, ...], int] = {}
    code = {name: i for i, name in enumerate(labels)}
    which: dict[str, list[int]] = {}
    for cell, table in sets.partition_by(CELL, as_dict=True, maintain_order=True).items():
        own = explained.join(table, on="node", maintain_order="left")
        which[view_key(cell)] = [
            patterns.setdefault(tuple(code[name] for name in spelt or ()), len(patterns))
            for spelt in own["set"].to_list()
        ]
    return {
        "explained": [index[node] for node in explained["node"]],
        "probs": probs,
        "scores": values,
        "sets": which,
        "patterns": [list(pattern) for pattern in patterns],
    }


def _first_thresholds(stored: Stored, labels: list[str]) -> dict[str, Any]:
    """By cell: one threshold, a list in the order of the labels, or those of the groups by name."""
    seed = stored.results["seed"][0]
    if stored.thresholds is None:
        first = stored.results.filter(pl.col("seed") == seed)
        return {view_key(row[:-1]): _short(row[-1]) for row in first.select(*CELL, "q_hat").rows()}
    first = stored.thresholds.filter(pl.col("seed") == seed)
    found: dict[str, Any] = {}
    for cell, table in first.partition_by(CELL, as_dict=True, maintain_order=True).items():
        own = {group: _short(q_hat) for group, q_hat in table.select("group", "q_hat").rows()}
        by_label = table["kind"][0] == "class"
        found[view_key(cell)] = [own[label] for label in labels] if by_label else own
    return found


def _short(q_hat: float) -> float | None:
    """None where it is infinite."""
    return round(q_hat, 6) if np.isfinite(q_hat) else None


def _codes(column: pl.Series, names: list[str]) -> list[int]:
    """Positions in the names; -1 for a label that is not known."""
    code: dict[str | None, int] = {name: i for i, name in enumerate(names)} | {None: -1}
    return [code[value] for value in column]


def _steps(values: pl.Series, steps: int) -> list[int | None]:
    """Whole steps; None where a score is −∞: the likeliest label under ``--no-empty-sets``."""
    whole = (pl.col("x").cast(pl.Float64) * steps).round().cast(pl.Int64, strict=False)
    found = values.alias("x").to_frame().select(pl.when(pl.col("x").is_finite()).then(whole))
    return found.to_series().to_list()
