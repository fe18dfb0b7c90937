"""The command line: a thin layer over the public Python calls."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.exceptions import TyperException

from fedcover import __version__
from fedcover.errors import DataError, FedcoverError, UsageError

if TYPE_CHECKING:
    from fedcover.paper.definition import Definition

app = typer.Typer(
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Prediction sets for federated graphs, with a coverage guarantee that holds.",
)
data_app = typer.Typer(help="The named graphs: list, show, fetch, cuts.")
app.add_typer(data_app, name="data")

INTERRUPTED = 130  # 128 + SIGINT, as shells count
THREADS_PER_CORE = 4  # more only slow down, and thousands bring the process down

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Folder with raw files, laid out as PyG does."),
]


def main() -> None:
    """Entry point: one sentence on stderr for what a user can mend, and the right exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a table's lines and ± are not in every encoding
            stream.reconfigure(errors="replace")
    status, sentence = _outcome()
    if sentence:
        print(f"fedcover: {sentence}", file=sys.stderr)
    sys.exit(status)


def _outcome() -> tuple[int, str]:
    try:
        status = app(prog_name="fedcover", standalone_mode=False) or 0
    except FedcoverError as error:
        return error.exit_status, str(error)
    except TyperException as error:  # an unknown option, a missing argument, …
        return 2, _sentence(error)
    except MemoryError:
        return 1, "there is not enough memory for this run."
    except OSError as error:  # a name that is too long, a folder that may not be read, …
        place = f"{error.filename}: " if error.filename else ""
        return 1, f"{place}{error.strerror or error}."
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    # Typer turns Ctrl-C into a status of its own accord.
    return status, "interrupted; nothing is half-written." if status == INTERRUPTED else ""


def _sentence(error: TyperException) -> str:
    close = getattr(error, "possibilities", None)  # to an unknown option, the closest first
    if close:
        return f"{error.message}; did you mean {close[0]}?"
    text = " ".join(error.format_message().split())
    return text if text.endswith("?") else f"{text.rstrip('.')}; see fedcover --help."


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number.") from None


def _number(metavar: str, meaning: str) -> Any:
    """An option that takes a whole number; what range it may have, the settings know."""
    return typer.Option(metavar=metavar, help=meaning, parser=_whole)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedcover {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  (its callback has done the work)
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and stop.")
    ] = False,
) -> None:
    _help_if_alone(context)


@data_app.callback(invoke_without_command=True)
def _data(context: typer.Context) -> None:
    _help_if_alone(context)


def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@app.command()
def run(
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help="A name (cora, …) or a path to an own graph.")
    ],
    clients: Annotated[int | None, _number("K", "Number of clients (default: 10).")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Of loc, fed, gen, fedsage, fedsage+, restored, central; separated by commas. "
            "Each may be followed by +prox, +prior, and +tuned, +mix or +corrected, as in "
            "fed+prox+prior+mix."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="gcn or sage.")] = None,
    scores: Annotated[
        str | None,
        typer.Option(
            help="Of lac, aps, aps-det, raps; over neighbours dlac, daps; over similar nodes too "
            "slac, snaps."
        ),
    ] = None,
    quantiles: Annotated[
        str | None,
        typer.Option(
            help="Of exact, mixture, pooled, average, tdigest; the first two have a guarantee."
        ),
    ] = None,
    mixture: Annotated[
        str | None,
        typer.Option(
            help="The clients' shares of test nodes, for mixture, e.g. 0.5,0.3,0.2 (default: "
            "as they are)."
        ),
    ] = None,
    alphas: Annotated[str | None, typer.Option(help="Levels of error, e.g. 0.05,0.1,0.2.")] = None,
    seeds: Annotated[int | None, _number("N", "Repetitions.")] = None,
    first_seed: Annotated[int | None, _number("N", "Seed of the first one.")] = None,
    preset: Annotated[
        str, typer.Option(help="default, plain (FedAvg and no more) or paper (as published).")
    ] = "default",
    rounds: Annotated[int | None, _number("R", "Rounds of averaging.")] = None,
    patience: Annotated[
        int | None, _number("N", "Stop after so many rounds without a lower validation loss.")
    ] = None,
    local_epochs: Annotated[int | None, _number("E", "Epochs at a client in each round.")] = None,
    batch_size: Annotated[
        int | None, _number("B", "Training nodes a step; 0 for all at once.")
    ] = None,
    hidden: Annotated[int | None, _number("H", "Hidden units.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    unit_features: Annotated[
        bool | None,
        typer.Option(
            "--unit-features/--raw-features",
            help="Scale each node's features to length 1 (default: if they look like words).",
        ),
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="metis, louvain, random or given (the client column).")
    ] = None,
    resplits: Annotated[
        int | None, _number("N", "Calibration/test re-splits that coverage is judged on.")
    ] = None,
    prototypes: Annotated[
        str | None, typer.Option(help="Gen: numbers M of prototypes to choose from.")
    ] = None,
    shares: Annotated[
        str | None, typer.Option(help="Gen: shares p of linked pairs to choose from.")
    ] = None,
    linking: Annotated[
        str | None, typer.Option(help="Gen: p of each node's pairs (node) or of all (global).")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Gen: differential privacy of the prototypes; inf for none."),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(help="Gen: the noise multiplier, in place of epsilon."),
    ] = None,
    dp_prototypes: Annotated[
        str | None,
        typer.Option(help="Gen: prior, or reconstructions (the paper's; not covered by epsilon)."),
    ] = None,
    no_empty_sets: Annotated[
        bool, typer.Option("--no-empty-sets", help="Add the top label to every set.")
    ] = False,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run folder (default: runs/GRAPH-K).")
    ] = None,
    threads: Annotated[int | None, _number("N", "CPU threads for training.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")] = False,
) -> None:
    """Train, calibrate and judge prediction sets; write a run folder.

    Example: fedcover run cora --clients 10 --methods fed,fed+prox+prior+mix --alphas 0.05,0.1
    """
    from fedcover import display
    from fedcover.experiment import Config
    from fedcover.experiment import run as run_experiment
    from fedcover.experiment.store import check_target, holds_run
    from fedcover.graphs import load

    config = Config.preset(
        preset,
        clients=clients,
        methods=_words("methods", methods),
        model=model,
        scores=_words("scores", scores),
        quantiles=_words("quantiles", quantiles),
        mixture=_numbers("mixture", mixture, float),
        alphas=_numbers("alphas", alphas, float),
        seeds=seeds,
        first_seed=first_seed,
        rounds=rounds,
        patience=patience,
        local_epochs=local_epochs,
        batch_size=batch_size,
        hidden=hidden,
        lr=lr,
        unit_features=unit_features,
        partition=partition,
        resplits=resplits,
        empty_sets=False if no_empty_sets else None,
        epsilon=epsilon,
        noise=noise,
        dp_prototypes=dp_prototypes,
        gen_prototypes=_numbers("prototypes", prototypes, int, "whole numbers"),
        gen_shares=_numbers("shares", shares, float),
        gen_linking=linking,
    )
    _use_threads(threads)
    began = time.perf_counter()
    if out is not None:
        check_target(out)
    loaded = load(graph, data)
    folder = out or Path("runs") / f"{loaded.name}-{config.clients or config.partition}"
    check_target(folder)
    if holds_run(folder) and not quiet:
        print(
            f"fedcover: note: {folder} held an earlier run, which this one replaces.",
            file=sys.stderr,
        )
    with display.progress(quiet) as progress:
        finished = run_experiment(loaded, config, progress=progress)
    finished.save(folder)
    for note in finished.info["notes"]:
        print(f"fedcover: note: {note}", file=sys.stderr)
    if not quiet:
        display.summary(display.console(), finished)
        seconds = time.perf_counter() - began
        files = "report.html, results.csv, groups.csv, sets.parquet, ledger.parquet, run.json"
        print(f"\n{folder}: {files} ({seconds:.1f} s)")


@app.command()
def paper(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="datasets, missing-edges, main, clients, coverage, accuracy, scores, "
            "scores-coverage, quantiles, privacy, communication, or all; verify computes some "
            "stored cells again and compares; redraw makes the files again from stored rows.",
        ),
    ],
    preset: Annotated[
        str, typer.Option(help="default (the guarantee holds) or paper (as published).")
    ] = "default",
    graphs: Annotated[
        str | None, typer.Option(help="Only these graphs, e.g. cora,citeseer (default: all).")
    ] = None,
    seeds: Annotated[int | None, _number("N", "Repetitions (default: as the target has).")] = None,
    store: Annotated[
        Path, typer.Option(metavar="DIR", help="Where finished cells are kept.")
    ] = Path("runs/paper"),
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Tables and figures go to DIR/PRESET (default: results; of own targets, results "
            "beside them).",
        ),
    ] = None,
    definitions: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Own targets, one TOML file each (default: the paper's)."),
    ] = None,
    workers: Annotated[int | None, _number("N", "Processes (default: one a core).")] = None,
    sample: Annotated[int, _number("N", "verify: how many cells.")] = 3,
    draw: Annotated[int, _number("N", "verify: which ones, by a seed.")] = 0,
    data: Data = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")] = False,
) -> None:
    """Make a table or figure of the paper, ours beside the published numbers.

    What was finished before is not computed again; an interrupted run goes on where it stopped.
    Example: fedcover paper clients --preset paper
    """
    from fedcover import display
    from fedcover.paper.definition import PRESETS, chosen, narrowed, read_all
    from fedcover.paper.produce import produce, redraw
    from fedcover.paper.store import Store

    if preset not in PRESETS:
        raise UsageError(f"preset is {preset!r}; it must be one of {', '.join(PRESETS)}.")
    for name, value, least in (
        ("workers", workers, 1),
        ("sample", sample, 1),
        ("seeds", seeds, 1),
        ("draw", draw, 0),
    ):
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}; it must be a whole number of {least} or more.")
    every = read_all(definitions)
    known = narrowed(every, _words("graphs", graphs), seeds)
    if target in every and target not in known:
        raise UsageError(
            f"{target} has no graph of {graphs}; it is about {', '.join(every[target].graphs)}."
        )
    folder = (out or (definitions or Path()) / "results") / preset
    if target == "verify":
        _verify(known.values(), preset, folder, sample, draw, data)
        return
    targets = chosen("all" if target == "redraw" else target, known)
    began = time.perf_counter()
    if target == "redraw":
        tables = redraw(targets, preset, out=folder, data=data)
    else:
        with display.grid_progress(quiet) as on_cell:
            tables = produce(
                targets,
                list(known.values()),
                preset,
                store=Store(store),
                out=folder,
                data=data,
                workers=workers,
                on_cell=on_cell,
            )
    if not quiet:
        for _, table in tables:
            display.paper_table(display.console(), table)
        names = ", ".join(definition.target for definition, _ in tables)
        print(f"{folder}: {names} ({time.perf_counter() - began:.0f} s)")


def _verify(
    known: Iterable[Definition], preset: str, out: Path, count: int, draw: int, data: str | None
) -> None:
    from fedcover.paper import grid
    from fedcover.paper.files import read_rows
    from fedcover.paper.produce import ROWS_FILE
    from fedcover.paper.verify import sample, verify

    stored = read_rows(out / ROWS_FILE)
    drawn = sample(grid.cells(known, preset), stored, count, draw)
    failed = 0
    for comparison in verify(drawn, stored, data):
        verdict = "agrees" if comparison.agrees else "DIFFERS"
        print(
            f"{comparison.cell.name}: {verdict} in {comparison.rows} rows (largest difference: "
            f"{comparison.size:.4f} labels, {comparison.coverage:.4f} coverage)",
            flush=True,
        )
        failed += not comparison.agrees
    if failed:
        raise DataError(f"{failed} of {len(drawn)} cells differ from {out / ROWS_FILE}.")
    print(f"{len(drawn)} of {len(drawn)} cells agree with {out / ROWS_FILE}.")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A folder that run wrote.")],
) -> None:
    """Write a run's page, report.html, again from its stored results.

    Example: fedcover report runs/cora-10
    """
    from fedcover.report.page import write_run_page

    print(write_run_page(folder))


@data_app.command("list")
def data_list(data: Data = None) -> None:
    """Name every graph, where it would come from, and its published statistics."""
    from fedcover import display
    from fedcover.graphs.statistics import list_rows

    display.datasets(display.console(), list_rows(data))


@data_app.command("show")
def data_show(
    graph: Annotated[str, typer.Argument(metavar="NAME")],
    data: Data = None,
) -> None:
    """Print one graph's statistics beside the published ones."""
    from fedcover import display
    from fedcover.graphs.statistics import show_rows

    display.graph(display.console(), show_rows(graph, data))


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Download one graph's raw files into the cache."""
    from fedcover.graphs import fetch

    where = fetch(name)
    print(f"{name}: {where}" if where else f"{name} is part of the package.")


@data_app.command("cuts")
def data_cuts(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="cora, citeseer (default: both)."),
    ] = None,
    seeds: Annotated[int, _number("N", "METIS seeds to average over.")] = 5,
    data: Data = None,
) -> None:
    """Count the edges that the partition cuts, beside the paper's missing edges."""
    from fedcover import display
    from fedcover.graphs.statistics import missing_edges_rows

    if seeds < 1:
        raise UsageError(f"--seeds is {seeds}; it must be a whole number of 1 or more.")
    display.cuts(display.console(), missing_edges_rows(data, range(seeds), names))


def _words(option: str, text: str | None, what: str = "words") -> tuple[str, ...] | None:
    if text is None:
        return None
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise UsageError(f"--{option} is {text!r}; give {what} separated by single commas.")
    return words


Number = TypeVar("Number", int, float)


def _numbers(
    option: str, text: str | None, kind: type[Number], what: str = "numbers"
) -> tuple[Number, ...] | None:
    words = _words(option, text, what)
    if words is None:
        return None
    try:
        return tuple(kind(word) for word in words)
    except ValueError:
        raise UsageError(
            f"--{option} is {text!r}; give {what} separated by single commas."
        ) from None


def _use_threads(threads: int | None) -> None:
    import torch

    if threads is not None:
        if threads < 1:
            raise UsageError(f"threads is {threads}; it must be a whole number of 1 or more.")
        cores = os.cpu_count() or 1
        if threads > THREADS_PER_CORE * cores:
            raise UsageError(
                f"threads is {threads}; it must be at most {THREADS_PER_CORE * cores}, "
                f"{THREADS_PER_CORE} for each core of this machine."
            )
        torch.set_num_threads(threads)
