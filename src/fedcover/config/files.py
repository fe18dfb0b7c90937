"""A run's settings as a TOML file: read, checked, and written so that reading gives them back.

A file holds settings of :class:`~fedcover.config.Config`, those of ``gen``, ``neighgen`` and
``personal`` in tables, and optionally the ``preset`` that they change. What is not set is left out.
"""

import json
from pathlib import Path
from typing import Any

from fedcover.config.schema import Settings, declared, flattened
from fedcover.config.settings import Config, changes_of
from fedcover.errors import DataError, UsageError

EITHER = {"epsilon", "noise"}  # at most one is set: an option takes the place of the file's


def configured(file: str | Path | None = None, preset: str | None = None, **options: Any) -> Config:
    """The configuration of a preset, a file over it, and options over both.

    ``None`` among the options means: as the file or the preset has it. Settings in tables have the
    names that :meth:`Config.preset` gives them.
    """
    held = {} if file is None else read_settings(file)
    in_file = held.pop("preset", "default")
    name = preset or in_file
    changes_of(name)
    try:
        Config.preset(name, **held)  # so that a sentence about the file can say so
    except UsageError as error:
        raise DataError(f"{file}: {error}") from error
    given = {key: value for key, value in options.items() if value is not None}
    if EITHER & given.keys():
        held = {key: value for key, value in held.items() if key not in EITHER}
    return Config.preset(name, **(held | given))


def read_settings(path: str | Path) -> dict[str, Any]:
    """What a TOML file sets, by the names of options; a name that is unknown is refused."""
    import tomllib

    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise DataError(f"{path} is not a regular file.")
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        held = {"preset": given.pop("preset")} if "preset" in given else {}
        changes_of(held.get("preset", "default"))
        return held | flattened(Config, given)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not a TOML file: {error}.") from error
    except UsageError as error:
        raise DataError(f"{path}: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}.") from error


def to_toml(config: Config) -> str:
    """Every setting that has a value; :func:`configured` makes the same configuration of it."""
    return "\n".join(_lines(config, "")) + "\n"


def _lines(settings: Settings, place: str) -> list[str]:
    lines, below = [], []
    for name in declared(type(settings)):
        value = getattr(settings, name)
        if isinstance(value, Settings):
            below += ["", f"[{place}{name}]", *_lines(value, f"{place}{name}.")]
        else:
            lines.append(f"# {name}: not set" if value is None else f"{name} = {literal(value)}")
    return lines + below


def literal(value: Any) -> str:
    """One value in TOML; a float keeps every digit."""
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(literal, value))}]"
    return repr(value)  # inf and exponents are spelt as TOML spells them
