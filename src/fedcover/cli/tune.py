"""``fedcover tune``: settings for a graph, chosen on validation nodes."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fedcover.cli import options
from fedcover.cli.options import examples, number, option
from fedcover.errors import UsageError

EXAMPLES = examples(
    "fedcover tune cora --minutes 3 --out best.toml",
    "fedcover tune my-graph --partition given --methods gen --candidates 9",
)
Command = options.with_settings(
    *("methods", "clients", "partition", "first_seed", "rounds", "unit_features"),
    *("standardise", "prototypes", "shares"),
    methods="Which methods to choose from, spelt as in run (default: what the file of --config "
    "has, or the preset's recipe with fed and with gen).",
    first_seed="Seed of the split whose validation nodes decide (default: 0).",
    rounds="Rounds of the longest training (default: 100).",
)


def tune(
    graph: options.Graph,
    minutes: Annotated[float, option("M", "Time budget; 0 for none.")] = 10.0,
    candidates: Annotated[int | None, number("N", "Settings to try in all (default: 27).")] = None,
    seeds: Annotated[int | None, number("N", "Trainings of each candidate (default: 5).")] = None,
    seed: Annotated[int, number("N", "Seed of the draw of candidates.")] = 0,
    alpha: Annotated[float, option("A", "Level at which scores are compared.")] = 0.1,
    missing: options.Missing = "refuse",
    group: options.Group = None,
    match: options.Match = None,
    preset: options.Preset = None,
    config_file: options.ConfigFile = None,
    data: options.Data = None,
    out: Annotated[Path, option("FILE", "The choice, for run --config.")] = Path("best.toml"),
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """Choose method, model, sizes, rounds and score on validation nodes, by successive halving."""
    from fedcover.config import configured, read_settings
    from fedcover.display import answers, terminal
    from fedcover.graphs import load
    from fedcover.tuning import tune as choose
    from fedcover.tuning.space import usual_methods

    if minutes < 0:
        raise UsageError(f"--minutes is {minutes:g}; it must be a positive number, or 0 for none.")
    settings = options.given()
    config = configured(config_file, preset, **settings)
    held = read_settings(config_file) if config_file is not None else {}
    if "methods" not in {**held, **settings}:
        config = replace(config, methods=usual_methods(config))
    options.use_threads(threads)
    options.check_out(out, ".toml")
    loaded = load(graph, data, missing=missing, group=group, match=match)
    numbers = {"candidates": candidates, "seeds": seeds, "seed": seed}
    asked: dict[str, Any] = {name: count for name, count in numbers.items() if count is not None}
    budget = minutes or None
    with terminal.progress(quiet) as progress, terminal.notes_held_back():
        tuned = choose(loaded, config, minutes=budget, alpha=alpha, progress=progress, **asked)
    beside = tuned.save(out)
    again = [graph, "--config", str(out)]
    again += ["--missing", missing] if missing != "refuse" else []
    again += ["--group", group] if group is not None else []
    again += ["--data", str(data)] if data is not None else []
    terminal.notes(tuned.notes)
    if not quiet:
        answers.tuning(terminal.console(), tuned)
        print(f"\n{out}, {beside.name} ({tuned.seconds:.1f} s)")
        print(f"Next: fedcover run {' '.join(map(shlex.quote, again))}")
