"""What the commands' options have in common, and the options made from the schema of settings."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperOption

from fedcover.errors import DataError, UsageError
from fedcover.files import folder_above

if TYPE_CHECKING:
    from fedcover.config.schema import Setting

MISSING = ("refuse", "impute")
PRESETS = ("default", "plain", "paper")
METAVARS = {int: "N", float: "X", str: "NAME"}
THREADS_PER_CORE = 4  # more only slow down, and thousands bring the process down
_GIVEN = "fedcover.settings"


def option(metavar: str | None, meaning: str, *names: str, choices: tuple[str, ...] = ()) -> Any:
    """An option, and the choices that a shell offers for it; the settings check them."""
    offered = _offer(choices) if choices else None  # None: what the type offers, as files
    return typer.Option(*names, metavar=metavar, help=meaning, autocompletion=offered)


def argument(metavar: str, meaning: str) -> Any:
    """An argument, which the help shows with its name."""
    return typer.Argument(metavar=metavar, help=meaning)


def number(metavar: str, meaning: str, least: int | None = None) -> Any:
    """An option that takes a whole number; without ``least``, the settings know its range."""

    def check(param: typer.CallbackParam, value: int | None) -> int | None:
        if least is not None and value is not None and value < least:
            at_least = f"a whole number of {least} or more"
            raise UsageError(f"{param.name} is {value}; it must be {at_least}.")
        return value

    return typer.Option(metavar=metavar, help=meaning, parser=_whole, callback=check)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number.") from None


def _offer(choices: tuple[str, ...]) -> Callable[..., list[str]]:
    def offered(ctx: click.Context, args: list[str], incomplete: str) -> list[str]:
        del ctx, args
        return [choice for choice in choices if choice.startswith(incomplete)]

    return offered


ConfigFile = Annotated[
    Path | None, option("FILE", "TOML file of settings; options override it.", "--config")
]
Data = Annotated[str | None, option("DIR", "Folder of raw files, in PyG's layout.")]
Graph = Annotated[str, argument("GRAPH", "A name (cora, …) or the path of your own graph.")]
Group = Annotated[str | None, option("COLUMN", "Column of nodes' groups; not a feature.")]
Match = Annotated[
    str | None,
    option("COLUMN", "Column of keys: clients' nodes with the same one are linked; no feature."),
]
Missing = Annotated[str, option("M", "Empty features: refuse or impute.", choices=MISSING)]
Preset = Annotated[
    str | None,
    option("NAME", "default, plain (FedAvg alone) or paper (as published).", choices=PRESETS),
]
Quiet = Annotated[bool, option(None, "No progress, no table.", "--quiet", "-q")]
Threads = Annotated[int | None, number("N", "CPU threads for training.", least=1)]


def examples(*lines: str) -> str:
    """The end of a command's help: whole command lines, each of which a test parses."""
    # Typer makes one paragraph of what no empty line divides.
    return "\n\n".join(["Examples:", *lines])


def group(meaning: str, *lines: str) -> typer.Typer:
    """A group of commands; called without one, it prints its help."""
    return typer.Typer(
        help=meaning, callback=help_if_alone, invoke_without_command=True, epilog=examples(*lines)
    )


def help_if_alone(context: typer.Context) -> None:
    """A group of commands without one: its help, and the status of wrong usage."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def with_settings(*names: str, network: bool = False, **meanings: str) -> type[TyperCommand]:
    """The class of a command with an option for each of these settings; see :func:`given`.

    Without names, it has all settings of a run, or of a job over a network. ``meanings`` are help
    that fits the command better than the schema's. The options are made when their command is
    called: ``fedcover --help`` does not wait for the schema.
    """

    class SettingsCommand(TyperCommand):
        made = False

        def get_params(self, ctx: click.Context) -> list[click.Parameter]:
            from fedcover.config import Config, schema, settings

            if not self.made:
                self.made = True
                known = settings.network_settings() if network else schema.options(Config)
                for name, one in known.items():
                    if name in (names or known) and name != "sites":  # which --clients counts
                        self.params.append(_option(name, one, meanings.get(name) or one.help))
            return super().get_params(ctx)

    return SettingsCommand


def _option(name: str, one: "Setting", meaning: str) -> TyperOption:
    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            ctx.meta.setdefault(_GIVEN, {})[name] = one.read(value)

    flag = f"--{name}".replace("_", "-")
    metavar = METAVARS.get(one.kind)
    return TyperOption(
        param_decls=[name, flag if metavar else f"{flag}/--{one.off or f'no-{flag[2:]}'}"],
        type=str if metavar else bool,
        callback=keep,
        autocompletion=_offer(one.rule.choices),
        expose_value=False,
        metavar=f"{metavar},…" if one.several else metavar,
        help=meaning,
        hidden=one.rare,
        rich_help_panel=one.panel,
    )


def given() -> dict[str, Any]:
    """The settings that the command line names, read but not checked."""
    found: dict[str, Any] = click.get_current_context().meta.get(_GIVEN, {})
    return found


def words(name: str, text: str | None) -> tuple[str, ...] | None:
    """What stands between an option's commas."""
    if text is None:
        return None
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise UsageError(f"--{name} is {text!r}; give words separated by single commas.")
    return parts


def use_threads(threads: int | None) -> None:
    """Let torch train with so many threads; None: as many as it takes by itself."""
    import torch

    if threads is not None:
        most = THREADS_PER_CORE * (os.cpu_count() or 1)
        if threads > most:
            raise UsageError(
                f"threads is {threads}; it must be at most {most}, {THREADS_PER_CORE} for each "
                "core of this machine."
            )
        torch.set_num_threads(threads)


def check_out(path: Path, *endings: str) -> None:
    """Refuse, before any work, a file of ``--out`` that could not be written."""
    if path.suffix not in endings:
        raise UsageError(f"--out is {str(path)!r}; it must end in {' or '.join(endings)}.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; --out must name a file.")
    parent = folder_above(path)
    if not os.access(parent, os.W_OK):
        raise DataError(f"{path} cannot be written: {parent} is read-only.")
