"""``fedcover tune``: settings for a graph, chosen on validation nodes."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedcover.cli.notes import notes_held_back, print_notes
from fedcover.cli.options import (
    ConfigFile,
    Data,
    Graph,
    Group,
    Missing,
    Preset,
    Quiet,
    Threads,
    examples,
    number,
    use_threads,
)
from fedcover.cli.settings import given, some_settings, with_settings
from fedcover.errors import DataError, UsageError

EXAMPLES = examples(
    "fedcover tune cora --minutes 3 --out best.toml",
    "fedcover tune my-graph --partition given --methods gen --candidates 9",
)


Command = with_settings(
    some_settings(
        *("methods", "clients", "partition", "first_seed", "rounds", "unit_features"),
        *("standardise", "prototypes", "shares"),
    ),
    methods="Which methods to choose from, spelt as in run (default: what the file of --config "
    "has, or the preset's recipe with fed and with gen).",
    first_seed="Seed of the split whose validation nodes decide (default: 0).",
    rounds="Rounds of the longest training (default: 100).",
)


def tune(
    context: typer.Context,
    graph: Graph,
    minutes: Annotated[float, typer.Option(metavar="M", help="Time budget; 0 for none.")] = 10.0,
    candidates: Annotated[
        int | None, number("N", "How many settings to try, those given included (default: 27).")
    ] = None,
    seeds: Annotated[
        int | None, number("N", "Trainings of each candidate, the same for all (default: 5).")
    ] = None,
    seed: Annotated[int, number("N", "Seed of the draw of candidates.")] = 0,
    alpha: Annotated[
        float, typer.Option(metavar="A", help="Level at which scores are compared.")
    ] = 0.1,
    missing: Missing = "refuse",
    group: Group = None,
    preset: Preset = None,
    config_file: ConfigFile = None,
    data: Data = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The choice, as a file for run --config.")
    ] = Path("best.toml"),
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Choose method, model, sizes, rounds and score on validation nodes, by successive halving."""
    from fedcover import display
    from fedcover.config import configured, read_settings
    from fedcover.graphs import load
    from fedcover.tuning import tune as choose
    from fedcover.tuning.search import CANDIDATES, SEEDS
    from fedcover.tuning.space import usual_methods

    if minutes < 0:
        raise UsageError(f"--minutes is {minutes:g}; it must be a positive number, or 0 for none.")
    settings = given(context)
    config = configured(config_file, preset, **settings)
    held = read_settings(config_file) if config_file is not None else {}
    if "methods" not in {**held, **settings}:
        config = replace(config, methods=usual_methods(config))
    use_threads(threads)
    _check_target(out)
    loaded = load(graph, data, missing=missing, group=group)
    with display.progress(quiet) as progress, notes_held_back():
        tuned = choose(
            loaded,
            config,
            minutes=minutes or None,
            candidates=CANDIDATES if candidates is None else candidates,
            seeds=SEEDS if seeds is None else seeds,
            seed=seed,
            alpha=alpha,
            progress=progress,
        )
    beside = tuned.save(out)
    again = [graph, "--config", str(out)]
    again += ["--missing", missing] if missing != "refuse" else []
    again += ["--group", group] if group is not None else []
    again += ["--data", str(data)] if data is not None else []
    print_notes(tuned.notes)
    if not quiet:
        display.tuning(display.console(), tuned)
        print(f"\n{out}, {beside.name} ({tuned.seconds:.1f} s)")
        print(f"Next: fedcover run {' '.join(map(shlex.quote, again))}")


def _check_target(out: Path) -> None:
    """Refuse, before any work, a file that could not be written."""
    if out.suffix != ".toml":
        raise UsageError(f"--out is {str(out)!r}; it must end in .toml.")
    if out.is_dir():
        raise UsageError(f"{out} is a folder; --out must name a file.")
    parent = next(place for place in out.absolute().parents if place.exists())
    if not parent.is_dir():
        raise UsageError(f"{parent} is a file; {out} cannot be made in it.")
    if not os.access(parent, os.W_OK):
        raise DataError(f"{out} cannot be written: {parent} is read-only.")
