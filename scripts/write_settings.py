"""Write what is made from the schema of settings: a table in the docs, and the Flower app's keys.

Run it after a change of ``fedcover.config``; a test compares.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedcover.carriers.network.job import DEFAULTS, OWN
from fedcover.config import Config, NetworkSettings
from fedcover.config.files import literal
from fedcover.config.schema import Setting, options
from fedcover.config.settings import network_settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
APP = ROOT / "src" / "fedcover" / "carriers" / "network" / "flower" / "app" / "pyproject.toml"
MARKS = {
    PAGE: "<!-- Written by scripts/write_settings.py. -->\n",
    APP: "# Written by scripts/write_settings.py.\n",
}


def keys() -> str:
    """The app's keys; "" means: as the preset has it."""
    lines = [_line(key, "default" if key == "preset" else "", OWN[key]) for key in OWN]
    for name, one in network_settings().items():
        value = one.default if name in options(NetworkSettings) else ""
        lines.append(_line(name, DEFAULTS.get(name, value), one.meaning))
    return "\n".join(lines) + "\n"


def tables() -> str:
    """All settings, by their panels."""
    every = {**options(Config), **options(NetworkSettings)}
    panels = dict.fromkeys(one.panel for one in every.values())
    parts = []
    for panel in panels:
        own = {name: one for name, one in every.items() if one.panel == panel}
        parts.append(f"## {panel}\n\n" + "\n".join(_rows(own.items())) + "\n")
    return "\n" + "\n".join(parts)


def _rows(settings: Iterable[tuple[str, Setting]]) -> list[str]:
    rows = ["| option | in a file | default | must | meaning |", "|---|---|---|---|---|"]
    for name, one in settings:
        flag = f"--{name}".replace("_", "-")
        no = f", `--{one.off or f'no-{flag[2:]}'}`" if one.kind is bool else ""
        default = f"`{one.spelt_default}`" if one.spelt_default else ""
        marks = "\\*" * one.rare + "†" * one.simulated
        place = ".".join(one.path)
        words = one.rule.words
        rows.append(f"| `{flag}`{no}{marks} | `{place}` | {default} | {words} | {one.meaning} |")
    return rows


def _line(name: str, value: Any, meaning: str) -> str:
    spelt = literal("" if value is None else value)
    return f"{name.replace('_', '-')} = {spelt}  # {meaning[:-1]}"


def written(path: Path, content: str) -> str:
    """The file with the content after its mark."""
    head, mark, _ = path.read_text(encoding="utf-8").partition(MARKS[path])
    return head + mark + content


def everything() -> dict[Path, str]:
    """The files as they ought to be."""
    return {PAGE: written(PAGE, tables()), APP: written(APP, keys())}


if __name__ == "__main__":
    for file, text in everything().items():
        file.write_text(text, encoding="utf-8")
