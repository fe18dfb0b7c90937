"""What other commands found: the paper's tables, a predictor, a search, a federation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from fedcover.display.terminal import UNBOUNDED, full_width, number, table, with_spread
from fedcover.paper.tables import Table as PaperTable
from fedcover.predictor import Predictor
from fedcover.predictor.calibration import POOLED, PROMISES
from fedcover.report.summary import promised
from fedcover.tables import MARK, RESULTS
from fedcover.tuning import Tuning


def paper_table(console: Console, found: PaperTable) -> None:
    """A target of the paper, with its notes."""
    shown = table(found.headings, found.rows, title=found.title, words=range(found.words))
    wide = Console(width=UNBOUNDED, file=console.file)
    if full_width(wide, shown) <= console.width or not console.is_terminal:
        wide.print(shown)
    else:
        console.print(Text(f"{found.title}: too wide for this terminal; see the file."))
    for note in found.notes:
        console.print(Text(note), soft_wrap=True)
    console.print()


def predicted(
    console: Console,
    predictor: Predictor,
    alpha: float,
    score: str | None,
    quantile: str | None,
    sets: pl.DataFrame,
) -> None:
    """How many nodes of each kind there are, their sets, and whether the level is promised."""
    score, quantile = predictor.chosen("score", score), predictor.chosen("quantile", quantile)
    q_hats = [threshold.q_hat for threshold in predictor.thresholds(alpha, score, quantile)]
    kind = predictor.calibrations[score].kind
    several = f"by {kind}, from {min(q_hats):.6g} to {max(q_hats):.6g}"
    shown = f"{q_hats[0]:.6g}" if kind == POOLED else several
    head = f"{predictor.method}, {score}, {quantile}, level {1 - alpha:g}: q_hat {shown}"
    console.print(head, highlight=False, soft_wrap=True)
    if sets.is_empty():
        console.print("The graph has no node of this kind.")
        return
    found = sets.group_by("kind", "promise", maintain_order=True).agg(
        pl.len(), pl.col("size", "covered").mean()
    )
    lines = [
        [count, kind, f"{size:.2f}", "" if covered is None else f"{covered:.3f}", promise]
        for kind, promise, count, size, covered in found.iter_rows()
    ]
    lines.sort(key=lambda line: list(PROMISES).index(line[1]))
    headings = ("nodes", "kind", "labels in a set", "covered", "level promised")
    console.print(table(headings, lines, words=range(1, 5)))


def tuning(console: Console, tuned: Tuning) -> None:
    """What ``fedcover tune`` tried, the chosen one first, and how it chose the score."""
    settings = tuned.tried.columns[1 : tuned.tried.columns.index("rungs")]
    told = [key for key in settings if key != "method" or tuned.tried[key].n_unique() > 1]
    plain = ["candidate", *told, "rungs", "rounds"]
    lines = []
    for row in tuned.tried.filter(pl.col("rungs") > 0).iter_rows(named=True):
        cells = ["–" if row[key] is None else str(row[key]) for key in plain]
        loss = with_spread(row["valid_loss"], row["valid_loss_sd"], 4)
        lines.append([*cells, loss, f"{row['seconds']:.1f}"])
    headings = [heading.replace("_", " ") for heading in (*plain, "valid_loss", "seconds")]
    title = "validation loss: mean ± sd over seeds; the first is chosen, 0 is as given"
    words = [i for i, heading in enumerate(headings) if heading in ("method", "model")]
    tried = table(headings, lines, title=title, words=words, no_wrap=True)
    tried.width = full_width(console, tried)  # Gen has two settings more; no digit is left out
    console.print(tried, soft_wrap=True)
    if tuned.gain is not None:
        gain = "{:+.4f} ± {:.4f} (paired, standard error)".format(*tuned.gain)
        console.print(f"The best against the settings as given: {gain}.", highlight=False)
    if tuned.scores:
        lines = [
            [one.score, with_spread(one.size, one.size_sd), f"{one.coverage:.3f}"]
            for one in tuned.scores
        ]
        title = "labels in a set of a validation node, and their coverage"
        console.print()
        console.print(table(("score", "size", "covers"), lines, title=title), soft_wrap=True)
    best = tuned.tried.row(0, named=True)
    chosen = [f"{key.replace('_', ' ')} {best[key]}" for key in settings if best[key] is not None]
    chosen += [f"rounds {tuned.config.rounds}", f"score {tuned.config.scores[0]}"]
    console.print(f"Chosen: {', '.join(chosen)}.", highlight=False, soft_wrap=True)


def federation(console: Console, folder: Path) -> None:
    """The sizes of the sites' sets, each with its coverage, from a coordinator's run folder."""
    results = pl.read_csv(folder / "results.csv", glob=False, schema_overrides=RESULTS)
    case = ("method", "score", "quantile")
    seeds = results.group_by(*case, "alpha", maintain_order=True)
    means = seeds.agg(pl.col("set_size", "coverage").mean())
    alphas = sorted(set(results["alpha"]))
    lines = []
    for key, rows in means.sort("alpha", maintain_order=True).group_by(case, maintain_order=True):
        sizes = rows.select("set_size", "coverage").iter_rows()
        lines.append(
            [*key, *(f"{number(size, 2)} ({number(covers, 3)})" for size, covers in sizes)]
        )
    headings = ["method", "score", "quantile", *(f"{1 - alpha:g}" for alpha in alphas)]
    title, words = "mean set size (coverage)", range(len(headings))
    console.print(table(headings, lines, title=title, words=words))
    info = json.loads((folder / MARK).read_bytes())
    for note in info["notes"]:
        console.print(note, highlight=False, soft_wrap=True)
    if not results["coverage"].count():
        said = promised(info, "the level", info["config"]["quantiles"])
        console.print(said, highlight=False, soft_wrap=True)


def ledger(console: Console, totals: Sequence[Mapping[str, Any]]) -> None:
    """What travelled, by job, site, part and array."""
    words = ("job", "site", "part", "direction", "array", "type")
    lines = []
    for row in totals:
        shape = "×".join(map(str, row["shape"])) or "1"
        lines.append([*(row[name] for name in words), shape, row["messages"], row["bytes"]])
    console.print(table((*words, "shape", "messages", "bytes"), lines, words=range(7)))
    for direction, meaning in (("up", "left"), ("down", "reached")):
        sizes = [row["bytes"] for row in totals if row["direction"] == direction]
        if sizes:
            console.print(f"{meaning} the site: {sum(sizes):,} bytes")
