"""Options of the command line, made from the schema of settings.

They are made when their command is called: ``fedcover --help`` does not wait for the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
import typer
from typer.core import TyperCommand, TyperOption

if TYPE_CHECKING:
    from fedcover.config.schema import Setting

METAVARS = {int: "N", float: "X", str: "NAME"}
_GIVEN = "fedcover.settings"


def with_settings(known: Callable[[], Mapping[str, Setting]], **meanings: str) -> type[Any]:
    """The class of a command with an option for each of these settings; see :func:`given`.

    ``meanings`` are help that fits the command better than the schema's.
    """

    class SettingsCommand(TyperCommand):
        made = False

        def get_params(self, ctx: click.Context) -> list[click.Parameter]:
            if not self.made:
                self.made = True
                self.params += [_option(name, one, meanings) for name, one in known().items()]
            return super().get_params(ctx)

    return SettingsCommand


def given(context: typer.Context) -> dict[str, Any]:
    """The settings that the command line names, read but not checked."""
    found: dict[str, Any] = context.meta.get(_GIVEN, {})
    return found


def run_settings() -> Mapping[str, Setting]:
    """All settings of a run."""
    from fedcover.config import Config
    from fedcover.config.schema import options

    return options(Config)


def some_settings(*names: str) -> Callable[[], Mapping[str, Setting]]:
    """Those of a run's settings that these names have."""
    return lambda: {name: one for name, one in run_settings().items() if name in names}


def _option(name: str, one: Setting, meanings: Mapping[str, str]) -> TyperOption:
    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            ctx.meta.setdefault(_GIVEN, {})[name] = one.read(value)

    def offered(ctx: click.Context, args: list[str], incomplete: str) -> list[str]:
        del ctx, args
        return [choice for choice in one.rule.choices if choice.startswith(incomplete)]

    flag = f"--{name}".replace("_", "-")
    metavar = METAVARS.get(one.kind)
    return TyperOption(
        param_decls=[name, flag if metavar else f"{flag}/--{one.off or f'no-{flag[2:]}'}"],
        type=str if metavar else bool,
        callback=keep,
        autocompletion=offered,
        expose_value=False,
        metavar=f"{metavar},…" if one.several else metavar,
        help=meanings.get(name) or one.help,
        hidden=one.rare,
        rich_help_panel=one.panel,
    )
