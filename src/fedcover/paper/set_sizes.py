"""Set sizes and their coverage, beside the published sizes."""

from dataclasses import replace
from typing import Any

import polars as pl

from fedcover.graphs.catalogue import DATASETS
from fedcover.paper import published
from fedcover.paper.definition import Definition
from fedcover.paper.grid import rows_of_target
from fedcover.paper.tables import Table, signed
from fedcover.report.summary import summarise_rows

CLOSE = 0.10
PAPERS = {"aps-det": "aps"}
CELL = ("dataset", "clients", "method", "variant", "model", "score", "quantile", "alpha")


def summarise_cells(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a cell; ``inside``, of re-splits, is None where nothing is promised."""
    promised = pl.when(pl.col("resplit_status") != "none")
    return summarise_rows(rows, CELL).with_columns(
        (1 - pl.col("alpha")).round(6).alias("level"),
        promised.then(pl.col("resplit_status") == "inside").alias("inside"),
    )


def cells_of(definition: Definition, preset: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The summarised cells that the target shows, each with what was published of it."""
    against = definition.presets[preset].against
    sizes = published.set_sizes().filter(table=definition.published or "")
    # The paper's APS is deterministic, and its main table has no other score.
    score = pl.lit("aps") if sizes["score"].n_unique() == 1 else pl.col("score").replace(PAPERS)
    return (
        summarise_cells(rows_of_target(definition, preset, rows))
        .with_columns(pl.col("method").replace(against).alias("published_method"), their=score)
        .join(
            sizes.rename({"set_size": "published", "set_size_sd": "published_sd"}),
            left_on=["dataset", "clients", "published_method", "their", "level"],
            right_on=["dataset", "clients", "method", "score", "level"],
            how="left",
            maintain_order="left",
        )
    )


def cells_table(definition: Definition, preset: str, rows: pl.DataFrame) -> Table:
    """Graph, K and method down; for each level ours ± sd, its coverage, the paper's, difference."""
    cells = cells_of(definition, preset, rows)
    against = definition.presets[preset].against
    varying = [c for c in ("variant", "score", "quantile") if cells[c].n_unique() > 1]
    compared = cells["published"].is_not_null().any()
    columns = ["size", "covers", *(["paper", "diff."] if compared else [])]
    title = f"{definition.title} ({preset})"
    extra = {}
    if against:
        # The methods of ``against`` alone: one line a graph and K.
        own = cells.filter(pl.col("method").is_in(list(against)))
        names = [f"{ours} beside the paper's {theirs}" for ours, theirs in against.items()]
        short = f"{definition.title}: {', '.join(names)}"
        extra["short"] = _table(short, definition, own, [], ["size", "covers", "paper"])
    table = _table(title, definition, cells, ["method", *varying], columns)
    return replace(table, notes=_notes(cells, definition), extra=extra)


def _table(
    title: str, definition: Definition, cells: pl.DataFrame, keys: list[str], columns: list[str]
) -> Table:
    """A line for each graph, K and further key; these columns for each level."""
    body = []
    for key, block in cells.group_by("dataset", "clients", *keys, maintain_order=True):
        line = [DATASETS[str(key[0])].title, *map(str, key[1:])]
        for alpha in definition.alphas:
            found = block.filter(alpha=alpha).rows(named=True)
            texts = _texts(found[0]) if found else {}
            line += [texts.get(column, "–") for column in columns]
        body.append(line)
    headings = ["graph", "K", *keys]
    for level in definition.levels:
        headings += [f"{level:.2f}" if column == "size" else column for column in columns]
    data = cells.select(
        *CELL, "seeds", "set_size", "set_size_sd", "coverage", "coverage_se", "inside",
        "min_client_coverage", "accuracy", "published_method", "published", "published_sd",
    ).with_columns(pl.selectors.float().exclude("alpha").round(5))  # fmt: skip
    return Table(title, headings, body, data, words=len(keys) + 2 if keys else 1)


def _texts(cell: dict[str, Any]) -> dict[str, str]:
    spread = "" if cell["set_size_sd"] is None else f" ± {cell['set_size_sd']:.2f}"
    mark = "▼" if cell["below"] else "▲" if cell["resplit_status"] == "above" else ""
    texts = {"size": f"{cell['set_size']:.2f}{spread}", "covers": f"{cell['coverage']:.3f}{mark}"}
    if cell["published"] is not None:
        texts["paper"] = f"{cell['published']:.2f}"
        texts["diff."] = signed(cell["set_size"] / cell["published"] - 1, "+.0%")
    return texts


def _notes(cells: pl.DataFrame, definition: Definition) -> list[str]:
    """What was measured; by method how ours compares; by rule how often the promise was kept."""
    scores, rules = (", ".join(cells[c].unique(maintain_order=True)) for c in ("score", "quantile"))
    notes = [
        f"Score {scores}; quantile {rules}; {definition.seeds} seeds; size: mean ± sd over seeds; "
        "coverage: mean over seeds and calibration/test re-splits. ▼: below its level by more than "
        "three standard errors of that mean; ▲: above the theorem's band by as much."
    ]
    compared = cells.filter(pl.col("published").is_not_null())
    for (method, score), found in compared.group_by("method", "score", maintain_order=True):
        ratio = found["set_size"] / found["published"] - 1
        low, close = int((ratio <= 0).sum()), int(((ratio > 0) & (ratio <= CLOSE)).sum())
        notes.append(
            f"{method}, {score}: at most the published size in {low} of {len(found)} cells, up to "
            f"10 % above in {close}, larger in {len(found) - low - close}."
        )
    for (rule,), block in cells.group_by("quantile", maintain_order=True):
        inside, count = block["inside"], len(block)
        if inside.is_null().all():
            notes.append(
                f"{rule}: no guarantee; coverage is below its level in {block['below'].sum()} of "
                f"{count} cells, lowest {block['coverage'].to_numpy().min():.3f}."
            )
        else:
            notes.append(
                f"{rule}: coverage in the theorem's band in {inside.sum()} of {count} cells."
            )
    return notes
