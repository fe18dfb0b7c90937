"""What a terminal shows: progress on stderr, tables on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedcover.conformal import RULES
from fedcover.experiment.config import Config
from fedcover.experiment.methods import Progress as ProgressCall
from fedcover.experiment.recipes import recipe_of
from fedcover.experiment.run import Run
from fedcover.experiment.summary import STANDARD_ERRORS, closed_share, summarise
from fedcover.graphs.catalogue import GraphStats
from fedcover.graphs.statistics import DatasetRow, GraphRow, MissingEdgesRow
from fedcover.paper.tables import Table as PaperTable
from fedcover.paper.work import OnCell
from fedcover.predictor import Predictor
from fedcover.tuning import Tuning

_UNBOUNDED = 100_000  # characters: wider than any table


def console() -> Console:
    """Standard output; a pipe is given room for the widest table."""
    return Console() if sys.stdout.isatty() else Console(width=120)


@contextmanager
def progress(quiet: bool) -> Iterator[ProgressCall | None]:
    """A bar on a terminal, one line a finished stage elsewhere, nothing when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as bar:
            tasks: dict[str, int] = {}

            def show(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bar.add_task(stage, total=total)
                bar.update(tasks[stage], completed=done)  # type: ignore[arg-type]

            yield show
    else:

        def say(stage: str, done: int, total: int) -> None:
            # Only what is finished: a graph that a later seed cannot cut is refused in one line.
            if done == total:
                print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)

        yield say


@contextmanager
def grid_progress(quiet: bool) -> Iterator[OnCell | None]:
    """Cells done and the time that remains: a bar on a terminal, one line a cell elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        columns = (BarColumn(), TextColumn("{task.completed}/{task.total} cells"))
        said = TextColumn("{task.description}")
        with Progress(*columns, TimeElapsedColumn(), said, console=Console(stderr=True)) as bar:
            task = bar.add_task("")

            def show(done: int, total: int, left: float | None, name: str) -> None:
                text = f"{_left(left)}; last: {name}" if name else ""
                bar.update(task, completed=done, total=total, description=text)

            yield show
    else:

        def say(done: int, total: int, left: float | None, name: str) -> None:
            what = f"{name}; {_left(left)}" if name else "finished before"
            print(f"{done} of {total} cells: {what}", file=sys.stderr, flush=True)

        yield say


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes else f"about {seconds:.0f} s left"


def paper_table(console: Console, table: PaperTable) -> None:
    """A target of the paper, with its notes."""
    shown = Table(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD)
    for number, heading in enumerate(table.headings):
        shown.add_column(Text(heading), justify="left" if number < table.words else "right")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    wide = Console(width=_UNBOUNDED, file=console.file)
    if wide.measure(shown).maximum <= console.width or not console.is_terminal:
        wide.print(shown)
    else:
        console.print(Text(f"{table.title}: too wide for this terminal; see the file."))
    for note in table.notes:
        console.print(Text(note), soft_wrap=True)
    console.print()


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def summary(console: Console, finished: Run) -> None:
    """Methods × levels for each score and quantile rule: set size, its spread, and coverage.

    Levels that do not fit beside each other come in several tables, one below the other.
    """
    config = finished.config
    rows = summarise(finished.results, finished.groups, config.resplits)
    clients = _count(finished.results["clients"][0], "client")
    methods = [recipe_of(name).method for name in config.methods]
    models = ", ".join(dict.fromkeys(method.model or config.model for method in methods))
    title = f"{finished.info['graph']['name']}, {clients}, {models}"
    # A Text is printed as it stands: no markup and no emoji code in a graph's name is obeyed.
    console.print(Text(f"{title}: labels in a set, and their coverage", style="table.title"))
    tables = _fitting(console, rows, config)
    if not tables[0].show_edge:
        console.print()
    for table in tables:
        console.print(table, soft_wrap=True)
        if not table.show_edge:  # an edge is an empty line by itself
            console.print()
    spread = "mean ± sd" if config.seeds > 1 else "mean"
    lines = [
        f"Size: {spread} over {_count(config.seeds, 'seed')}. Coverage: mean over seeds and "
        f"{_count(config.resplits, 'calibration/test re-split')}.",
    ]
    if rows["below"].any():
        lines.append(
            f"▼ covers less than its level, by more than {STANDARD_ERRORS} standard errors."
        )
    if not all(RULES[rule].guarantee for rule in config.quantiles):
        lines.append("Only the quantiles 'exact' and 'mixture' have a guarantee.")
    if config.calibrate != "pooled":
        lines.append(
            f"Calibrated by {config.calibrate}: each has its own threshold; coverage by "
            f"{config.calibrate} is in groups.csv."
        )
    if any(method.simulation for method in methods):
        lines.append("restored is a simulation: its clients are given what no party has.")
    console.print("\n".join(lines), highlight=False)
    if {"fed", "gen", "restored"} <= set(config.methods):
        console.print()
        console.print(_closed(closed_share(finished.results), config), soft_wrap=True)
    for name, chosen in finished.info.get("chosen_on_validation", {}).items():
        if grids := chosen.get("grid"):
            console.print()
            console.print(_grid(name, grids), soft_wrap=True)
    if finished.info.get("privacy"):
        console.print(_privacy_sentence(finished.info["privacy"]), highlight=False)


def _grid(name: str, grids: Sequence[Sequence[dict[str, Any]]]) -> Table:
    """Gen's validation loss over M and p, and how many seeds chose each cell."""
    cells = pl.DataFrame(
        [cell | {"seed": seed} for seed, grid in enumerate(grids) for cell in grid]
    ).with_columns(pl.col("valid_loss").cast(pl.Float64))
    best = cells.group_by("seed", maintain_order=True).agg(pl.all().sort_by("valid_loss").first())
    shares = cells["share"].unique(maintain_order=True)
    table = Table(
        title=f"{name}: validation loss by M and p, and in brackets the seeds that chose the cell",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("M", justify="right", no_wrap=True)
    for share in shares:
        table.add_column(f"p = {share:g}", justify="right", no_wrap=True)
    for (m,), row in cells.group_by(["prototypes"], maintain_order=True):
        texts = []
        for share in shares:
            losses = row.filter(share=share)["valid_loss"].drop_nulls().to_list()
            chosen = len(best.filter(prototypes=m, share=share))
            shown = f"{sum(losses) / len(losses):.3f}" if losses else "–"
            texts.append(f"{shown} ({chosen})" if chosen else f"{shown}    ")
        table.add_row(str(m), *texts)
    return table


def _closed(shares: pl.DataFrame, config: Config) -> Table:
    """What part of the distance from fed to restored gen closes."""
    table = Table(
        title="of the distance from fed to restored, gen closes (–: hardly any)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("score", "quantile"):
        table.add_column(heading, no_wrap=True)
    for alpha in config.alphas:
        table.add_column(f"{1 - alpha:.4g}", justify="right", no_wrap=True)
    for (score, rule), cells in shares.group_by("score", "quantile", maintain_order=True):
        closed = ["–" if share is None else f"{share:.0%}" for share in cells["closed"]]
        table.add_row(str(score), str(rule), *closed)
    return table


def _privacy_sentence(spent: dict[str, Any]) -> str:
    cover = (
        "the prototypes are covered by it"
        if spent["covered"]
        else "the prototypes, made from real nodes, are NOT covered by it"
    )
    return (
        f"Differential privacy: epsilon = {spent['epsilon']:.3g} at delta = {spent['delta']:g} for "
        f"each client's VAE; {cover}. Weights of the GNN and the VGAE are not."
    )


def _fitting(console: Console, rows: pl.DataFrame, config: Config) -> list[Table]:
    """One table if the console is wide enough, else closer columns and as few tables as fit."""
    alphas = config.alphas
    whole = _levels(rows, config.methods, alphas)
    if _width(console, whole) <= console.width:
        return [whole]
    tables: list[Table] = []
    first = 0
    while first < len(alphas):
        last = first + 1  # one level at least, however narrow the console
        table = _levels(rows, config.methods, alphas[first:last], close=True)
        while last < len(alphas):
            wider = _levels(rows, config.methods, alphas[first : last + 1], close=True)
            if _width(console, wider) > console.width:
                break
            table, last = wider, last + 1
        table.width = _width(console, table)  # where one level is too wide, cells stay whole
        tables.append(table)
        first = last
    return tables


def _levels(
    rows: pl.DataFrame, methods: Sequence[str], alphas: Sequence[float], close: bool = False
) -> Table:
    """The table of some levels; no cell of it is ever wrapped."""
    table = Table(box=box.SIMPLE_HEAD)
    if close:
        table.padding, table.pad_edge, table.show_edge = (0, 1, 0, 0), False, False
    for heading in ("score", "quantile", "method"):
        table.add_column(heading, no_wrap=True)
    for alpha in alphas:
        table.add_column(f"{1 - alpha:.4g}", justify="right", no_wrap=True)
        table.add_column("covers", justify="left", no_wrap=True)
    table.add_column("accuracy", justify="right", no_wrap=True)
    for (score, rule), block in rows.group_by("score", "quantile", maintain_order=True):
        for method in methods:
            own = block.filter(pl.col("method") == method)
            cells = [
                text
                for alpha in alphas
                for text in _cells(own.row(by_predicate=pl.col("alpha") == alpha, named=True))
            ]
            table.add_row(str(score), str(rule), method, *cells, f"{own['accuracy'][0]:.3f}")
        table.add_section()
    return table


def _width(console: Console, table: Table) -> int:
    """The columns a table takes when nothing presses it together."""
    unbounded = console.options.update_width(_UNBOUNDED)
    return console.measure(table, options=unbounded).maximum


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _cells(row: dict[str, float]) -> tuple[str, str]:
    spread = "" if row["set_size_sd"] is None else f" ± {row['set_size_sd']:.2f}"
    return f"{row['set_size']:.2f}{spread}", f"{row['coverage']:.3f}{'▼' if row['below'] else ''}"


def datasets(console: Console, rows: Sequence[DatasetRow]) -> None:
    """The named graphs, ours beside the published statistics."""
    table = Table(title="largest connected component | as published", title_justify="left")
    for heading in ("name", "where", "nodes", "edges", "features", "labels"):
        table.add_column(heading, justify="left" if heading in ("name", "where") else "right")
    for row in rows:
        pairs = zip(_numbers(row.ours), _numbers(row.published), strict=True)
        table.add_row(
            Text(row.name), Text(row.place), *(f"{ours} | {paper}" for ours, paper in pairs)
        )
    console.print(table)
    _notes(console, [(row.name, row.note) for row in rows])


def graph(console: Console, rows: Sequence[GraphRow]) -> None:
    """One graph: whole, largest component, as published."""
    table = Table()
    for heading in ("", "nodes", "edges", "features", "labels"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(Text(row.what), *_numbers(row.stats))
    console.print(table)
    _notes(console, [(row.what, row.note) for row in rows])


def cuts(console: Console, rows: Sequence[MissingEdgesRow]) -> None:
    """The paper's table of missing edges beside ours."""
    table = Table(title="missing edges: mean (lowest-highest) over seeds", title_justify="left")
    for heading in ("graph", "edges", "K", "missing", "%", "paper", "paper %"):
        table.add_column(heading, justify="left" if heading == "graph" else "right")
    for row in rows:
        ours, paper = row.ours, row.published
        table.add_row(
            Text(row.name),
            f"{ours.edges:,}",
            str(row.clients),
            f"{ours.missing:,.0f} ({row.lowest:,}-{row.highest:,})",
            f"{ours.percent:.2f}",
            f"{paper.missing:,.0f}",
            f"{paper.percent:.2f}",
        )
    console.print(table)


def _numbers(stats: GraphStats | None) -> list[str]:
    if stats is None:
        return ["-"] * 4
    values = (stats.nodes, stats.edges, stats.features, stats.labels)
    return [f"{value:,}" for value in values]


def _notes(console: Console, notes: Sequence[tuple[str, str]]) -> None:
    for name, note in notes:
        if note:
            console.print(Text(f"{name}: {note}"))


def predicted(
    console: Console, predictor: Predictor, alpha: float, score: str | None, sets: pl.DataFrame
) -> None:
    """How many nodes of each kind there are, their sets, and whether the level is promised."""
    name = predictor.chosen_score(score)
    console.print(
        f"{predictor.method}, {name}, level {1 - alpha:g}: q_hat "
        f"{predictor.q_hat(alpha, name):.6g}",
        highlight=False,
    )
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("nodes", "kind", "labels in a set", "covered", "level promised"):
        table.add_column(column, justify="right" if column in ("nodes",) else "left")
    for (kind, promise), rows in sets.group_by("kind", "promise", maintain_order=True):
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
    settings = tuned.tried.columns[: tuned.tried.columns.index("rungs")]
    for heading in (*settings, "rungs", "rounds", "valid_loss", "seconds"):
        side: Literal["left", "right"] = "left" if heading == "model" else "right"
        table.add_column(heading.replace("_", " "), justify=side, no_wrap=True)
    for row in tuned.tried.iter_rows(named=True):
        loss = "–" if row["valid_loss"] is None else f"{row['valid_loss']:.4f}"
        if row["valid_loss_sd"] is not None:
            loss += f" ± {row['valid_loss_sd']:.4f}"
        cells = [f"{row[key]}" for key in settings]
        rounds = "–" if row["rounds"] is None else str(row["rounds"])
        table.add_row(*cells, str(row["rungs"]), rounds, loss, f"{row['seconds']:.1f}")
    console.print(table, soft_wrap=True)
    if tuned.gain is not None:
        difference, error = tuned.gain
        console.print(
            f"Against the settings as given: {difference:+.4f} ± {error:.4f} (paired, standard "
            "error).",
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
    words = [f"{key.replace('_', ' ')} {best[key]}" for key in settings[1:]]
    words += [f"rounds {tuned.config.rounds}", f"score {tuned.config.scores[0]}"]
    console.print(f"Chosen: {', '.join(words)}.", highlight=False, soft_wrap=True)


def federation(console: Console, folder: Path) -> None:
    """The sizes of the sites' sets, each with its coverage, from a coordinator's run folder."""
    results = pl.read_csv(folder / "results.csv")
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
    """What travelled, by job, site, phase and array."""
    table = Table(box=box.SIMPLE_HEAD)
    columns = ("job", "site", "phase", "direction", "name", "type", "shape", "messages", "bytes")
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
