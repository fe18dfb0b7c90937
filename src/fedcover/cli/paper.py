"""``fedcover paper``: the paper's tables and figures."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedcover.cli.options import Data, Quiet, argument, examples, number, option, words
from fedcover.errors import DataError, UsageError

if TYPE_CHECKING:
    from fedcover.paper.definition import Definition

EXAMPLES = examples(
    "fedcover paper main",
    "fedcover paper clients --preset paper --graphs cora,citeseer",
    "fedcover paper verify --sample 5",
)


def paper(
    target: Annotated[
        str,
        argument(
            "TARGET",
            "datasets, missing-edges, main, clients, coverage, accuracy, scores, "
            "scores-coverage, quantiles, privacy, communication, or all; verify computes some "
            "stored cells again and compares; redraw makes the files again from stored rows.",
        ),
    ],
    preset: Annotated[str, option("NAME", "default, or paper (as published).")] = "default",
    graphs: Annotated[str | None, option("A,B,…", "Only these graphs (default: all).")] = None,
    seeds: Annotated[int | None, number("N", "Repetitions (default: the target's).", 1)] = None,
    store: Annotated[Path, option("DIR", "Where finished cells are kept.")] = Path("runs/paper"),
    out: Annotated[
        Path | None, option("DIR", "All goes to DIR/PRESET (default: results, beside own targets).")
    ] = None,
    definitions: Annotated[
        Path | None, option("DIR", "Own targets, one TOML file each (default: the paper's).")
    ] = None,
    workers: Annotated[int | None, number("N", "Processes (default: one a core).", 1)] = None,
    sample: Annotated[int, number("N", "verify: how many cells.", 1)] = 3,
    draw: Annotated[int, number("N", "verify: which ones, by a seed.", 0)] = 0,
    data: Data = None,
    quiet: Quiet = False,
) -> None:
    """Make a table or figure of the paper, ours beside the published numbers.

    What was finished before is not computed again; an interrupted run goes on where it stopped.
    """
    from fedcover.display import answers, terminal
    from fedcover.paper.definition import PRESETS, chosen, narrowed, read_all
    from fedcover.paper.store import Store
    from fedcover.paper.targets import produce, redraw, require_matplotlib

    if preset not in PRESETS:
        raise UsageError(f"preset is {preset!r}; it must be one of {', '.join(PRESETS)}.")
    every = read_all(definitions)
    known = narrowed(every, words("graphs", graphs), seeds)
    if target in every and target not in known:
        raise UsageError(
            f"{target} has no graph of {graphs}; it is about {', '.join(every[target].graphs)}."
        )
    folder = (out or (definitions or Path()) / "results") / preset
    if target == "verify":
        _verify(known.values(), preset, folder, sample, draw, data)
        return
    targets = chosen("all" if target == "redraw" else target, known)
    require_matplotlib(targets)  # before the store makes its folder
    began = time.perf_counter()
    if target == "redraw":
        tables = redraw(targets, preset, out=folder, data=data)
    else:
        with terminal.grid_progress(quiet) as on_cell:
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
            answers.paper_table(terminal.console(), table)
        names = ", ".join(definition.target for definition, _ in tables)
        print(f"{folder}: {names} ({time.perf_counter() - began:.0f} s)")


def _verify(
    known: "Iterable[Definition]", preset: str, out: Path, count: int, draw: int, data: str | None
) -> None:
    from fedcover.display import terminal
    from fedcover.paper import grid
    from fedcover.paper.store import read_rows
    from fedcover.paper.targets import ROWS_FILE
    from fedcover.paper.workers import sample, verify

    stored = read_rows(out / ROWS_FILE)
    drawn = sample(grid.cells(known, preset), stored, count, draw)
    failed = 0
    with terminal.notes_held_back():
        for one in verify(drawn, stored, data):
            verdict = f"{'agrees' if one.agrees else 'DIFFERS'} in {one.rows} rows"
            largest = f"{one.size:.4f} labels, {one.coverage:.4f} coverage"
            print(f"{one.cell.name}: {verdict} (largest difference: {largest})", flush=True)
            failed += not one.agrees
    if failed:
        raise DataError(f"{failed} of {len(drawn)} cells differ from {out / ROWS_FILE}.")
    print(f"{len(drawn)} of {len(drawn)} cells agree with {out / ROWS_FILE}.")
