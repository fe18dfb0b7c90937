"""What the commands' options have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcover.errors import UsageError


def one_of(*names: str) -> Callable[[str], list[str]]:
    """What a shell offers for an option that takes one of these; the settings check it."""

    def offered(incomplete: str) -> list[str]:  # Typer knows the argument by its name
        return [name for name in names if name.startswith(incomplete)]

    return offered


Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Folder with raw files, laid out as PyG does."),
]
Graph = Annotated[
    str, typer.Argument(metavar="GRAPH", help="A name (cora, …) or a path to an own graph.")
]
Missing = Annotated[
    str,
    typer.Option(
        metavar="M",
        help="Empty features of own tables: refuse, or impute.",
        autocompletion=one_of("refuse", "impute"),
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="A column of an own graph's nodes that is its group, no feature."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]
Preset = Annotated[
    str | None,
    typer.Option(
        help="default, plain (FedAvg and no more) or paper (as published).",
        autocompletion=one_of("default", "plain", "paper"),
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings as TOML; options given beside it win over it."
    ),
]
THREADS_PER_CORE = 4  # more only slow down, and thousands bring the process down


def examples(*lines: str) -> str:
    """The end of a command's help: whole command lines, each of which a test parses."""
    # Typer makes one paragraph of what no empty line divides.
    return "\n\n".join(["Examples:", *lines])


def help_if_alone(context: typer.Context) -> None:
    """A group of commands without one: its help, and the status of wrong usage."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number.") from None


def number(metavar: str, meaning: str) -> Any:
    """An option that takes a whole number; what range it may have, the settings know."""
    return typer.Option(metavar=metavar, help=meaning, parser=_whole)


Threads = Annotated[int | None, number("N", "CPU threads for training.")]


def words(option: str, text: str | None) -> tuple[str, ...] | None:
    """What stands between an option's commas."""
    if text is None:
        return None
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise UsageError(f"--{option} is {text!r}; give words separated by single commas.")
    return parts


def use_threads(threads: int | None) -> None:
    """Let torch train with so many threads; None: as many as it takes by itself."""
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
