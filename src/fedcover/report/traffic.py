"""The ledger for a page: bytes by kind of message and by client (docs/communication.md)."""

from __future__ import annotations

from typing import Any

import polars as pl


def traffic(ledger: pl.DataFrame | None) -> dict[str, Any] | None:
    """By method: mean bytes a seed of each kind, up and down; and each client's, first seed."""
    if ledger is None:
        return None
    sent = ledger.with_columns((pl.col("bytes") * pl.col("rounds")).alias("sent"))
    seeds = sent["seed"].n_unique()
    return {
        "kinds": _two_ways(sent, "kind", max(seeds, 1)),
        "clients": _two_ways(sent.filter(pl.col("seed") == pl.col("seed").min()), "client", 1),
    }


def _two_ways(sent: pl.DataFrame, by: str, seeds: int) -> dict[str, list[list[Any]]]:
    up, down = (
        pl.col("sent").filter(pl.col("direction") == way).sum().alias(way) for way in ("up", "down")
    )
    table = sent.group_by("method", by, maintain_order=True).agg(up, down)
    found: dict[str, list[list[Any]]] = {}
    for method, name, sent_up, sent_down in table.iter_rows():
        found.setdefault(method, []).append(
            [name, round(sent_up / seeds), round(sent_down / seeds)]
        )
    return found
