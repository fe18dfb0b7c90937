"""What a table or figure of the paper consists of, read from a small TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcover.config import Config, recipe_of
from fedcover.errors import DataError, UsageError
from fedcover.graphs.catalogue import DATASETS

PRESETS = ("default", "paper")
KINDS = ("statistics", "cuts", "cells", "change", "bytes")
STYLES = ("lines", "heatmap")
UNTRAINED = ("statistics", "cuts")
"""Kinds about graphs alone: there is no model, so both presets show the same."""
HEIGHTS = ("set_size", "coverage")
PUBLISHED = ("main", "scores")
OWN = ("clients", "methods", "scores", "quantiles", "alphas", "seeds", "first_seed")
AXES = ("dataset", "clients", "method", "variant", "score", "quantile", "level")


@dataclass(frozen=True)
class Variant:
    """Some methods under changed settings, e.g. Gen with differential privacy."""

    name: str
    methods: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Selection:
    """What one preset shows."""

    methods: tuple[str, ...]
    scores: tuple[str, ...]
    quantiles: tuple[str, ...]
    against: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True)
class Axes:
    """How a figure lays its rows out: ``y`` over ``x``, a line a ``series``, in ``panels``.

    A heat map has the values of ``y`` in rows of ``series`` and columns of ``x``. ``where`` keeps
    some rows only.
    """

    x: str
    y: str
    series: str
    panels: str
    style: str = "lines"
    where: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Definition:
    """One target: its place in the paper, its cells, and how they are shown."""

    target: str
    title: str
    place: str
    kind: str
    graphs: tuple[str, ...]
    clients: tuple[int, ...] = ()
    levels: tuple[float, ...] = ()
    seeds: int = 5
    published: str | None = None
    baseline: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    figure: Axes | None = None
    presets: Mapping[str, Selection] = field(default_factory=dict)

    @property
    def alphas(self) -> tuple[float, ...]:
        """The levels of error."""
        return tuple(round(1 - level, 6) for level in self.levels)


def folder() -> Path:
    """Where the definitions are: in the package, or beside the sources they were cloned with."""
    here = Path(__file__).parent
    packaged = here / "definitions"
    return packaged if packaged.is_dir() else here.parents[2] / "paper"


def read_all(where: Path | None = None) -> dict[str, Definition]:
    """All targets by name, in the order of their place in the paper."""
    where = where or folder()
    found = {path.stem: read(path) for path in sorted(where.glob("*.toml"))}
    if not found:
        raise DataError(f"{where} holds no definition of a table or figure (*.toml).")
    ranked = sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else 99, name))
    return {name: found[name] for name in ranked}


ORDER = (
    "datasets",
    "missing-edges",
    "main",
    "clients",
    "coverage",
    "accuracy",
    "scores",
    "scores-coverage",
    "quantiles",
    "privacy",
    "communication",
)


def chosen(targets: str, known: Mapping[str, Definition]) -> list[Definition]:
    """The definitions that a target on the command line names: one, or all."""
    if targets == "all":
        return list(known.values())
    if targets not in known:
        named = ", ".join([*known, "all", "verify", "redraw"])
        raise UsageError(f"target is {targets!r}; it must be one of {named}.")
    return [known[targets]]


def narrowed(
    known: Mapping[str, Definition], graphs: Sequence[str] | None, seeds: int | None
) -> dict[str, Definition]:
    """The definitions with fewer graphs, or another number of seeds; without any graph none."""
    for name in graphs or ():
        if name not in DATASETS:
            raise UsageError(f"graphs has {name!r}; it must be one of {', '.join(DATASETS)}.")
    found = {}
    for target, definition in known.items():
        kept = tuple(g for g in definition.graphs if graphs is None or g in graphs)
        if kept:
            count = definition.seeds if seeds is None else seeds
            found[target] = replace(definition, graphs=kept, seeds=count)
    return found


def read(path: Path) -> Definition:
    """One definition; what is wrong with the file is said with its name and key."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a TOML file: {error}.") from error
    try:
        return _definition(path.stem, given)
    except UsageError as error:
        raise DataError(f"{path}: {error}") from error


def _definition(target: str, given: Mapping[str, Any]) -> Definition:
    _check("", given, ENTRIES, required=("title", "place", "kind", "graphs"))
    _one_of("kind", given["kind"], KINDS)
    for name in given["graphs"]:
        _one_of("graphs", name, DATASETS)
    trained = given["kind"] not in UNTRAINED
    if trained:
        _check("", given, ENTRIES, required=("clients", "levels", *PRESETS))
    if "published" in given:
        _one_of("published", given["published"], PUBLISHED)
    definition = Definition(
        target=target,
        title=given["title"],
        place=given["place"],
        kind=given["kind"],
        graphs=tuple(given["graphs"]),
        clients=tuple(given.get("clients", ())),
        levels=tuple(given.get("levels", ())),
        seeds=given.get("seeds", 5),
        published=given.get("published"),
        baseline=given.get("baseline"),
        settings=given.get("settings", {}),
        figure=_axes(given["figure"]) if "figure" in given else None,
        presets={name: _selection(name, given[name]) for name in PRESETS if name in given},
    )
    if trained:
        _try(definition)
    return definition


def _selection(preset: str, given: Mapping[str, Any]) -> Selection:
    _check(f"{preset}.", given, SELECTION, required=("methods", "scores", "quantiles"))
    methods = _recipes(given["methods"])
    variants = []
    for entry in given.get("variants", ()):
        own = dict(entry)
        place = f"{preset}.variants."
        needed = {"name": str, "methods": [str]}
        _check(place, {k: v for k, v in own.items() if k in needed}, needed, tuple(needed))
        variants.append(Variant(own.pop("name"), _recipes(own.pop("methods")), own))
    for method in given.get("against", {}):
        _one_of(f"{preset}.against", method, methods)
    return Selection(
        methods=methods,
        scores=tuple(given["scores"]),
        quantiles=tuple(given["quantiles"]),
        against=dict(given.get("against", {})),
        variants=tuple(variants),
    )


def _recipes(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(recipe_of(name)) for name in names)


def _axes(given: Mapping[str, Any]) -> Axes:
    _check("figure.", given, FIGURE, required=("x", "y", "series", "panels"))
    for part in ("x", "series", "panels"):
        _one_of(f"figure.{part}", given[part], AXES)
    _one_of("figure.y", given["y"], HEIGHTS)
    _one_of("figure.style", given.get("style", STYLES[0]), STYLES)
    for column in given.get("where", {}):
        _one_of("figure.where", column, AXES)
    return Axes(**given)


ENTRIES: Mapping[str, Any] = {
    "title": str,
    "place": str,
    "kind": str,
    "graphs": [str],
    "clients": [int],
    "levels": [float],
    "seeds": int,
    "published": str,
    "baseline": str,
    "settings": dict,
    "figure": dict,
    **dict.fromkeys(PRESETS, dict),
}
SELECTION: Mapping[str, Any] = {
    "methods": [str],
    "scores": [str],
    "quantiles": [str],
    "against": dict,
    "variants": [dict],
}
FIGURE: Mapping[str, Any] = {
    "x": str,
    "y": str,
    "series": str,
    "panels": str,
    "style": str,
    "where": dict,
}
"""Entries of a file and what they hold: a type, or a list of values of a type."""

WORDS = {str: "text", int: "a whole number", float: "a number", dict: "a table"}


def _check(
    prefix: str, given: Mapping[str, Any], known: Mapping[str, Any], required: Sequence[str]
) -> None:
    for key, value in given.items():
        if key not in known:
            raise UsageError(f"there is no entry called {prefix}{key}.")
        kind = known[key]
        if isinstance(kind, list):
            if not (isinstance(value, list) and value and all(_is(v, kind[0]) for v in value)):
                what = WORDS[kind[0]]
                raise UsageError(f"{prefix}{key} is {value!r}; it must be a list, each {what}.")
        elif not _is(value, kind):
            raise UsageError(f"{prefix}{key} is {value!r}; it must be {WORDS[kind]}.")
    for key in required:
        if key not in given:
            raise UsageError(f"the entry {prefix}{key} is missing.")


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _one_of(entry: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise UsageError(f"{entry} has {value!r}; it must be one of {', '.join(allowed)}.")


def _try(definition: Definition) -> None:
    """Let the configuration check what it will be given, before anything is computed."""
    for preset, selection in definition.presets.items():
        if definition.baseline is not None:
            _one_of("baseline", definition.baseline, selection.methods)
        for variant in (Variant("", (), {}), *selection.variants):
            settings = {**definition.settings, **variant.settings}
            for key in settings:
                if key in OWN:
                    raise UsageError(f"settings has {key!r}, which has an entry of its own.")
            for clients in definition.clients:
                Config.preset(
                    preset,
                    clients=clients,
                    methods=selection.methods,
                    scores=selection.scores,
                    quantiles=selection.quantiles,
                    alphas=definition.alphas,
                    seeds=definition.seeds,
                    **settings,
                )
