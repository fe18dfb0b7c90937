"""``fedcover run`` and ``fedcover report``: a graph becomes a run folder, and its page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fedcover.cli.notes import notes_held_back, print_notes
from fedcover.cli.options import (
    Clients,
    ConfigFile,
    Data,
    Graph,
    Group,
    Missing,
    PartitionBy,
    Preset,
    Prototypes,
    Quiet,
    Shares,
    Standardise,
    Threads,
    UnitFeatures,
    examples,
    number,
    numbers,
    one_of,
    use_threads,
    words,
)

EXAMPLES = examples(
    "fedcover run cora",
    "fedcover run cora --clients 10 --methods fed,fed+prox+prior+mix --alphas 0.05,0.1",
    "fedcover run my-graph --partition given --seeds 1 --out runs/mine",
    "fedcover run citeseer --preset paper --data raw-files --quiet",
)
REPORT_EXAMPLES = examples("fedcover report runs/cora-10")


def run(
    graph: Graph,
    clients: Clients = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Of loc, fed, gen, fedsage, fedsage+, restored, central; separated by commas. "
            "Each may be followed by +prox, +prior, and +tuned or +mix, as in "
            "fed+prox+prior+mix."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="gcn or sage.", autocompletion=one_of("gcn", "sage"))
    ] = None,
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
    calibrate: Annotated[
        str | None,
        typer.Option(
            help="pooled: one threshold for all; client, class or group: one for each, and the "
            "promise for each that has enough calibration nodes.",
            autocompletion=one_of("pooled", "client", "class", "group"),
        ),
    ] = None,
    group: Group = None,
    alphas: Annotated[str | None, typer.Option(help="Levels of error, e.g. 0.05,0.1,0.2.")] = None,
    seeds: Annotated[int | None, number("N", "Repetitions.")] = None,
    first_seed: Annotated[int | None, number("N", "Seed of the first one.")] = None,
    preset: Preset = None,
    config_file: ConfigFile = None,
    rounds: Annotated[int | None, number("R", "Rounds of averaging.")] = None,
    patience: Annotated[
        int | None, number("N", "Stop after so many rounds without a lower validation loss.")
    ] = None,
    local_epochs: Annotated[int | None, number("E", "Epochs at a client in each round.")] = None,
    batch_size: Annotated[
        int | None, number("B", "Training nodes a step; 0 for all at once.")
    ] = None,
    hidden: Annotated[int | None, number("H", "Hidden units.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    unit_features: UnitFeatures = None,
    standardise: Standardise = None,
    missing: Missing = "refuse",
    partition: PartitionBy = None,
    resplits: Annotated[
        int | None, number("N", "Calibration/test re-splits that coverage is judged on.")
    ] = None,
    prototypes: Prototypes = None,
    shares: Shares = None,
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
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Run folder (default: runs/GRAPH-K, or runs/GRAPH-given with --partition given).",
        ),
    ] = None,
    threads: Threads = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print all settings as a file for --config, and stop."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train, calibrate and judge prediction sets; write a run folder."""
    from fedcover import display
    from fedcover.config import configured, to_toml
    from fedcover.graphs import load
    from fedcover.simulation import run as run_experiment
    from fedcover.simulation.store import check_target, holds_run

    config = configured(
        config_file,
        preset,
        clients=clients,
        methods=words("methods", methods),
        model=model,
        scores=words("scores", scores),
        quantiles=words("quantiles", quantiles),
        mixture=numbers("mixture", mixture, float),
        calibrate=calibrate,
        alphas=numbers("alphas", alphas, float),
        seeds=seeds,
        first_seed=first_seed,
        rounds=rounds,
        patience=patience,
        local_epochs=local_epochs,
        batch_size=batch_size,
        hidden=hidden,
        lr=lr,
        unit_features=unit_features,
        standardise=standardise,
        partition=partition,
        resplits=resplits,
        empty_sets=False if no_empty_sets else None,
        epsilon=epsilon,
        noise=noise,
        dp_prototypes=dp_prototypes,
        prototypes=numbers("prototypes", prototypes, int, "whole numbers"),
        shares=numbers("shares", shares, float),
        linking=linking,
    )
    if print_config:
        print(to_toml(config), end="")
        return
    use_threads(threads)
    began = time.perf_counter()
    if out is not None:
        check_target(out)
    loaded = load(graph, data, missing=missing, group=group)
    folder = out or Path("runs") / f"{loaded.name}-{config.clients or config.partition}"
    check_target(folder)
    if holds_run(folder) and not quiet:
        print_notes([f"{folder} held an earlier run, which this one replaces."])
    with display.progress(quiet) as progress, notes_held_back():
        finished = run_experiment(loaded, config, progress=progress)
    finished.save(folder)
    print_notes(finished.info["notes"])
    if not quiet:
        display.summary(display.console(), finished)
        seconds = time.perf_counter() - began
        own = "" if finished.thresholds is None else "thresholds.csv, "
        tables = f"results.csv, groups.csv, {own}sets.parquet, ledger.parquet"
        kept = ", model/" if finished.predictors else ""
        print(f"\n{folder}: report.html, {tables}, run.json{kept} ({seconds:.1f} s)")


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A folder that run wrote.")],
) -> None:
    """Write a run's page, report.html, again from its stored results."""
    from fedcover.report.page import write_run_page

    print(write_run_page(folder))
