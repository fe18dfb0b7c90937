"""A run's settings as a TOML file: read, checked, and written so that reading gives them back.

A file holds settings of :class:`~fedcover.experiment.Config` under their own names, those of
``gen``, ``neighgen`` and ``personal`` in tables, and optionally ``preset``, which they change.
TOML has no word for "not set": such a setting is left out.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from fedcover.errors import DataError, UsageError
from fedcover.experiment.config import PRESETS, Config
from fedcover.files import check_regular

_WORDS = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
_EITHER = (("epsilon", "noise"),)  # of each pair at most one is set, so the later one wins


def configured(file: str | Path | None = None, preset: str | None = None, **options: Any) -> Config:
    """The configuration of a preset, a file over it, and options over both.

    ``None`` among the options means: as the file or the preset has it. ``gen_shares`` and its like
    change settings of ``gen``, as in :meth:`Config.preset`.
    """
    held = read_settings(file) if file is not None else {}
    name = preset or held.pop("preset", "default")
    held.pop("preset", None)
    try:
        for table in _tables(Config):
            if table in held:
                held[table] = _over(getattr(Config.preset(name), table), held[table])
        Config.preset(name, **held)  # so that a sentence about the file can say so
    except UsageError as error:
        if not held:
            raise
        raise DataError(f"{file}: {error}") from error
    given = {key: value for key, value in options.items() if value is not None}
    for one, other in (*_EITHER, *(pair[::-1] for pair in _EITHER)):
        if one in given and other not in given:
            held.pop(other, None)
    return Config.preset(name, **(held | given))


def read_settings(path: str | Path) -> dict[str, Any]:
    """What a TOML file sets, tables as dictionaries; unknown names and wrong types are refused."""
    path = Path(path)
    check_regular(path)
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not a TOML file: {error}.") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}.") from error
    preset = given.pop("preset", None)
    settings = _checked_table(path, "", given, Config)
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise DataError(
                f"{path}: preset is {preset!r}; it must be one of {', '.join(PRESETS)}."
            )
        settings["preset"] = preset
    return settings


def to_toml(config: Config) -> str:
    """Every setting that has a value; :func:`configured` makes the same configuration of it."""
    return "\n".join(_lines(config, "")) + "\n"


def _lines(settings: Any, table: str) -> list[str]:
    lines, below = [], []
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        if is_dataclass(value):
            name = f"{table}{entry.name}"
            below += ["", f"[{name}]", *_lines(value, f"{name}.")]
        elif value is None:
            lines.append(f"# {entry.name}: not set")
        else:
            lines.append(f"{entry.name} = {_literal(value)}")
    return lines + below


def _literal(value: Any) -> str:
    """One value in TOML; a float keeps every digit."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))  # inf and exponents are spelt as TOML spells them
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_literal, value))}]"


def _tables(kind: type[Any]) -> list[str]:
    hints = get_type_hints(kind)
    return [entry.name for entry in fields(kind) if is_dataclass(hints[entry.name])]


def _over(settings: Any, changes: Mapping[str, Any]) -> Any:
    """Settings with those changes, tables within tables too."""
    inner = {
        key: _over(getattr(settings, key), value) if isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return replace(settings, **inner)


def _checked_table(path: Path, table: str, given: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    known = [entry.name for entry in fields(kind)]
    for key in given:
        if key not in known:
            offered = [*known, "preset"] if not table else known
            close = get_close_matches(key, offered, n=1)
            hint = f"; did you mean {table}{close[0]}?" if close else "."
            raise DataError(f"{path}: there is no setting called {table + key!r}{hint}")
    return {key: _checked(path, table + key, value, hints[key]) for key, value in given.items()}


def _checked(path: Path, key: str, value: Any, hint: Any) -> Any:
    """The value if it has the setting's type; what range it may have, the settings know."""
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise DataError(f"{path}: {key} is {value!r}; it must be a table, [{key}].")
        return _checked_table(path, f"{key}.", value, hint)
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is not tuple and kinds:  # "or not set"
        return _checked(path, key, value, kinds[0])
    if get_origin(hint) is tuple:
        several = value if isinstance(value, list) else [value]
        if all(_is(one, kinds[0]) for one in several):
            return tuple(several)
        what = f"a list, each entry {_WORDS[kinds[0]]}"
    elif _is(value, hint):
        return value
    else:
        what = _WORDS[hint]
    raise DataError(f"{path}: {key} is {value!r}; it must be {what}.")


def _is(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and not math.isnan(value)
    return isinstance(value, kind)
