"""Set sizes and their coverage, beside the published sizes."""

from __future__ import annotations

from typing import Any

import polars as pl

from fedcover.graphs.catalogue import DATASETS
from fedcover.paper import published
from fedcover.paper.definition import Definition
from fedcover.paper.tables import Table
from fedcover.paper.views.select import rows_of_target
from fedcover.report.summary import summarise_rows

CLOSE = 0.10
CELL = ("dataset", "clients", "method", "variant", "model", "score", "quantile", "alpha")


def summarise_cells(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a cell; ``inside`` is None where nothing is promised."""
    promised = pl.when(pl.col("status") != "none")
    return summarise_rows(rows, CELL).with_columns(
        (1 - pl.col("alpha")).round(6).alias("level"),
        promised.then(pl.col("status") == "inside").alias("inside"),
    )


def cells_of(definition: Definition, preset: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The summarised cells that the target shows, each with what was published of it."""
    selection = definition.presets[preset]
    cells = summarise_cells(rows_of_target(definition, preset, rows))
    sizes = published.sizes(definition.published) if definition.published else {}
    one_score = len({key[3] for key in sizes}) == 1
    against = [selection.against.get(method, method) for method in cells["method"]]
    found = []
    for row, method in zip(cells.iter_rows(named=True), against, strict=True):
        score = "aps" if one_score or row["score"] == "aps-det" else row["score"]
        found.append(sizes.get((row["dataset"], row["clients"], method, score, row["level"])))
    return cells.with_columns(
        pl.Series("published_method", against, dtype=pl.String),
        pl.Series("published", [size and size.mean for size in found], dtype=pl.Float64),
        pl.Series("published_sd", [size and size.sd for size in found], dtype=pl.Float64),
    )


def cells_table(definition: Definition, preset: str, rows: pl.DataFrame) -> Table:
    """Graph, K and method down; for each level ours ± sd, its coverage, the paper's, difference."""
    cells = cells_of(definition, preset, rows)
    compared = cells["published"].is_not_null().any()
    always = ["dataset", "clients", "method"]
    varying = [c for c in ("variant", "score", "quantile") if cells[c].n_unique() > 1]
    keys = [*always, *varying]
    headings = ["graph", "K", "method", *varying]
    for level in definition.levels:
        headings += [f"{level:.2f}", "covers", *(("paper", "diff.") if compared else ())]
    body = []
    for key, block in cells.group_by(keys, maintain_order=True):
        line = [DATASETS[str(key[0])].title, str(key[1]), *map(str, key[2:])]
        for alpha in definition.alphas:
            line += _cell(block.filter(alpha=alpha), compared)
        body.append(line)
    notes = [_what(cells, definition), *_counts(cells), *_coverage_notes(cells)]
    extra = {}
    if definition.presets[preset].against:
        extra["short"] = _short(definition, preset, cells)
    return Table(
        f"{definition.title} ({preset})",
        headings,
        body,
        _tidy(cells),
        notes,
        words=len(keys),
        extra=extra,
    )


def _cell(found: pl.DataFrame, compared: bool) -> list[str]:
    if found.is_empty():
        return ["–"] * (4 if compared else 2)
    row = found.row(0, named=True)
    texts = [_size(row), _coverage(row)]
    if compared and row["published"] is None:
        texts += ["–", "–"]
    elif compared:
        texts += [f"{row['published']:.2f}", f"{_difference(row):+.0%}".replace("-", "−")]
    return texts


def _size(row: dict[str, float]) -> str:
    spread = "" if row["set_size_sd"] is None else f" ± {row['set_size_sd']:.2f}"
    return f"{row['set_size']:.2f}{spread}"


def _coverage(row: dict[str, Any]) -> str:
    mark = "▼" if row["below"] else "▲" if row["status"] == "above" else ""
    return f"{row['coverage']:.3f}{mark}"


def _difference(row: dict[str, float]) -> float:
    return row["set_size"] / row["published"] - 1


def _what(cells: pl.DataFrame, definition: Definition) -> str:
    scores, rules = ", ".join(cells["score"].unique(maintain_order=True)), cells["quantile"]
    levels = "size: mean ± sd over seeds; coverage: mean over seeds and calibration/test re-splits"
    return (
        f"Score {scores}; quantile {', '.join(rules.unique(maintain_order=True))}; "
        f"{definition.seeds} seeds; {levels}. ▼: below its level by more than three standard "
        "errors of that mean; ▲: above the theorem's band by as much."
    )


def _counts(cells: pl.DataFrame) -> list[str]:
    """By method: how often ours is at most the published size, at most 10 % above, larger."""
    notes = []
    for (method, score), block in cells.group_by(["method", "score"], maintain_order=True):
        found = block.filter(pl.col("published").is_not_null())
        if found.is_empty():
            continue
        ratio = found["set_size"] / found["published"] - 1
        low, close = int((ratio <= 0).sum()), int(((ratio > 0) & (ratio <= CLOSE)).sum())
        notes.append(
            f"{method}, {score}: at most the published size in {low} of {len(found)} cells, up to "
            f"10 % above in {close}, larger in {len(found) - low - close}."
        )
    return notes


def _coverage_notes(cells: pl.DataFrame) -> list[str]:
    """By rule: how often the promise was kept."""
    notes = []
    for (rule,), block in cells.group_by(["quantile"], maintain_order=True):
        if block["inside"].is_null().all():
            notes.append(
                f"{rule}: no guarantee; coverage is below its level in {block['below'].sum()} of "
                f"{len(block)} cells, lowest {block['coverage'].to_numpy().min():.3f}."
            )
        else:
            notes.append(
                f"{rule}: coverage in the theorem's band in {int(block['inside'].sum())} of "
                f"{len(block)} cells."
            )
    return notes


def _short(definition: Definition, preset: str, cells: pl.DataFrame) -> Table:
    """The methods of ``against`` alone: one line a graph and K, size (coverage) and the paper's."""
    against = definition.presets[preset].against
    own = cells.filter(pl.col("method").is_in(list(against)))
    headings = ["graph", "K"]
    for level in definition.levels:
        headings += [f"{level:.2f}", "covers", "paper"]
    body = []
    for (graph, clients), block in own.group_by(["dataset", "clients"], maintain_order=True):
        line = [DATASETS[str(graph)].title, str(clients)]
        for alpha in definition.alphas:
            line += _cell(block.filter(alpha=alpha), compared=True)[:3]
        body.append(line)
    names = ", ".join(f"{ours} beside the paper's {theirs}" for ours, theirs in against.items())
    return Table(f"{definition.title}: {names}", headings, body, _tidy(own), words=1)


def _tidy(cells: pl.DataFrame) -> pl.DataFrame:
    return cells.select(
        *CELL, "seeds", "set_size", "set_size_sd", "coverage", "coverage_se", "inside",
        "min_client_coverage", "accuracy", "published_method", "published", "published_sd",
    ).with_columns(pl.selectors.float().exclude("alpha").round(5))  # fmt: skip
