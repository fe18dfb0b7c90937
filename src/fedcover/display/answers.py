"""What other commands found: the paper's tables, a predictor, a search, a federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedcover.conformal import Threshold
from fedcover.display.run import UNBOUNDED, full_width
from fedcover.paper.tables import Table as PaperTable
from fedcover.predictor import Predictor
from fedcover.predictor.calibration import POOLED
from fedcover.predictor.promise import PROMISES
from fedcover.tuning import Tuning


def paper_table(console: Console, table: PaperTable) -> None:
    """A target of the paper, with its notes."""
    shown = Table(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD)
    for number, heading in enumerate(table.headings):
        shown.add_column(Text(heading), justify="left" if number < table.words else "right")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    wide = Console(width=UNBOUNDED, file=console.file)
    if wide.measure(shown).maximum <= console.width or not console.is_terminal:
        wide.print(shown)
    else:
        console.print(Text(f"{table.title}: too wide for this terminal; see the file."))
    for note in table.notes:
        console.print(Text(note), soft_wrap=True)
    console.print()


def predicted(
    console: Console,
    predictor: Predictor,
    alpha: float,
    asked: tuple[str, str],
    thresholds: Sequence[Threshold],
    sets: pl.DataFrame,
) -> None:
    """How many nodes of each kind there are, their sets, and whether the level is promised;
    ``asked`` are the score and the quantile rule."""
    q_hats = [threshold.q_hat for threshold in thresholds]
    kind = predictor.calibrations[asked[0]].kind
    many = f" by {kind}, from {min(q_hats):.6g} to {max(q_hats):.6g}"
    console.print(
        f"{predictor.method}, {asked[0]}, {asked[1]}, level {1 - alpha:g}: q_hat"
        f"{f' {q_hats[0]:.6g}' if kind == POOLED else many}",
        highlight=False,
        soft_wrap=True,
    )
    if sets.is_empty():
        console.print("The graph has no node of this kind.")
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("nodes", "kind", "labels in a set", "covered", "level promised"):
        table.add_column(column, justify="right" if column in ("nodes",) else "left")
    order = {kind: place for place, kind in enumerate(PROMISES)}
    found = sets.group_by("kind", "promise", maintain_order=True)
    for (kind, promise), rows in sorted(found, key=lambda one: order[str(one[0][0])]):
        known = rows["covered"].mean()
        table.add_row(
            f"{len(rows):,}",
            str(kind),
            f"{cast(float, rows['size'].mean()):.2f}",
            "" if known is None else f"{cast(float, known):.3f}",
            str(promise),
        )
    console.print(table)


def tuning(console: Console, tuned: Tuning) -> None:
    """What ``fedcover tune`` tried, the chosen one first, and how it chose the score."""
    table = Table(
        title=Text("validation loss: mean ± sd over seeds; the first is chosen, 0 is as given"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    settings = tuned.tried.columns[1 : tuned.tried.columns.index("rungs")]
    told = [key for key in settings if key != "method" or tuned.tried[key].n_unique() > 1]
    for heading in ("candidate", *told, "rungs", "rounds", "valid_loss", "seconds"):
        side: Literal["left", "right"] = "left" if heading in ("method", "model") else "right"
        table.add_column(heading.replace("_", " "), justify=side, no_wrap=True)
    for row in tuned.tried.filter(pl.col("rungs") > 0).iter_rows(named=True):
        spread = "" if row["valid_loss_sd"] is None else f" ± {row['valid_loss_sd']:.4f}"
        table.add_row(
            str(row["candidate"]),
            *("–" if row[key] is None else str(row[key]) for key in told),
            str(row["rungs"]),
            str(row["rounds"]),
            f"{row['valid_loss']:.4f}{spread}",
            f"{row['seconds']:.1f}",
        )
    table.width = full_width(console, table)  # Gen has two settings more; no digit is left out
    console.print(table, soft_wrap=True)
    if tuned.gain is not None:
        difference, error = tuned.gain
        console.print(
            f"The best against the settings as given: {difference:+.4f} ± {error:.4f} (paired, "
            "standard error).",
            highlight=False,
        )
    if tuned.scores:
        sizes = Table(
            title=Text("labels in a set of a validation node, and their coverage"),
            title_justify="left",
            box=box.SIMPLE_HEAD,
        )
        for heading in ("score", "size", "covers"):
            sizes.add_column(heading, justify="left" if heading == "score" else "right")
        for one in tuned.scores:
            spread = "" if one.size_sd is None else f" ± {one.size_sd:.2f}"
            sizes.add_row(one.score, f"{one.size:.2f}{spread}", f"{one.coverage:.3f}")
        console.print()
        console.print(sizes, soft_wrap=True)
    best = tuned.tried.row(0, named=True)
    words = [f"{key.replace('_', ' ')} {best[key]}" for key in settings if best[key] is not None]
    words += [f"rounds {tuned.config.rounds}", f"score {tuned.config.scores[0]}"]
    console.print(f"Chosen: {', '.join(words)}.", highlight=False, soft_wrap=True)


def federation(console: Console, folder: Path) -> None:
    """The sizes of the sites' sets, each with its coverage, from a coordinator's run folder."""
    results = pl.read_csv(folder / "results.csv", glob=False)
    table = Table(box=box.SIMPLE_HEAD, title="mean set size (coverage)")
    alphas = sorted(set(results["alpha"]))
    for column in ("method", "score", "quantile", *(f"{1 - alpha:g}" for alpha in alphas)):
        table.add_column(column)
    for key, rows in results.group_by("method", "score", "quantile", maintain_order=True):
        by_level = {row["alpha"]: row for row in rows.iter_rows(named=True)}
        cells = [f"{by_level[a]['set_size']:.2f} ({by_level[a]['coverage']:.3f})" for a in alphas]
        table.add_row(*map(str, key), *cells)
    console.print(table)


def ledger(console: Console, totals: Sequence[Mapping[str, Any]]) -> None:
    """What travelled, by job, site, part and array."""
    table = Table(box=box.SIMPLE_HEAD)
    columns = ("job", "site", "part", "direction", "array", "type", "shape", "messages", "bytes")
    for column in columns:
        table.add_column(column, justify="right" if column in ("messages", "bytes") else "left")
    for row in totals:
        shape = "×".join(map(str, row["shape"])) or "1"
        numbers = [f"{row['messages']:,}", f"{row['bytes']:,}"]
        table.add_row(*(str(row[column]) for column in columns[:6]), shape, *numbers)
    console.print(table)
    for direction, meaning in (("up", "left"), ("down", "reached")):
        total = sum(row["bytes"] for row in totals if row["direction"] == direction)
        console.print(f"{meaning} the site: {total:,} bytes")
