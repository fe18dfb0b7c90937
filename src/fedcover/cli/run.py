"""``fedcover run`` and ``fedcover report``: a graph becomes a run folder, and its page."""

import time
from pathlib import Path
from typing import Annotated

from fedcover.cli import options
from fedcover.cli.options import argument, examples, option

EXAMPLES = examples(
    "fedcover run cora",
    "fedcover run cora --clients 10 --methods fed,fed+prox+prior+mix --alphas 0.05,0.1",
    "fedcover run my-graph --partition given --seeds 1 --out runs/mine",
    "fedcover run citeseer --preset paper --data raw-files --quiet",
)
Command = options.with_settings()


def run(
    graph: options.Graph,
    preset: options.Preset = None,
    config_file: options.ConfigFile = None,
    print_config: Annotated[
        bool, option(None, "Print all settings as a file for --config, and stop.", "--print-config")
    ] = False,
    data: options.Data = None,
    missing: options.Missing = "refuse",
    group: options.Group = None,
    match: options.Match = None,
    out: Annotated[
        Path | None, option("DIR", "Run folder (default: runs/GRAPH-K, or runs/GRAPH-given).")
    ] = None,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """Train, calibrate and judge prediction sets; write a run folder.

    Every setting is an option; docs/configuration.md lists those that are rarely changed, too.
    """
    from fedcover.config import configured, to_toml
    from fedcover.display import terminal
    from fedcover.display.run import summary
    from fedcover.graphs import load
    from fedcover.run_folder import check_target
    from fedcover.simulation import run as run_experiment
    from fedcover.tables import holds_run

    config = configured(config_file, preset, **options.given())
    if print_config:
        print(to_toml(config), end="")
        return
    options.use_threads(threads)
    began = time.perf_counter()
    if out is not None:
        check_target(out)
    loaded = load(graph, data, missing=missing, group=group, match=match)
    folder = out or Path("runs") / f"{loaded.name}-{config.clients or config.partition}"
    check_target(folder)
    if holds_run(folder) and not quiet:
        terminal.notes([f"{folder} held an earlier run, which this one replaces."])
    with terminal.progress(quiet) as progress, terminal.notes_held_back():
        finished = run_experiment(loaded, config, progress=progress)
    finished.save(folder)
    terminal.notes(finished.info["notes"])
    if not quiet:
        summary(terminal.console(), finished)
        seconds = time.perf_counter() - began
        own = "" if finished.thresholds is None else "thresholds.csv, "
        tables = f"results.csv, groups.csv, {own}sets.parquet, ledger.parquet"
        kept = ", model/" if finished.predictors else ""
        print(f"\n{folder}: report.html, {tables}, run.json{kept} ({seconds:.1f} s)")


def report(
    folder: Annotated[Path, argument("RUN_DIR", "A folder that run wrote.")],
) -> None:
    """Write a run's page, report.html, again from its stored results."""
    from fedcover.report.page import write_run_page

    print(write_run_page(folder))
