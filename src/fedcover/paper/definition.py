"""What a table or figure of the paper consists of, read from a small TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedcover.errors import DataError, UsageError
from fedcover.experiment.config import Config
from fedcover.experiment.recipes import recipe_of
from fedcover.graphs.catalogue import DATASETS

PRESETS = ("default", "paper")
KINDS = ("statistics", "cuts", "cells", "change", "bytes")
STYLES = ("lines", "heatmap")
UNTRAINED = ("statistics", "cuts")
"""Kinds about graphs alone: there is no model, so both presets show the same."""
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
        raise UsageError(f"target is {targets!r}; it must be one of {', '.join(known)}, all.")
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
        given = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a TOML file: {error}.") from error
    allowed = {f.name for f in fields(Definition)} - {"target", "presets"} | set(PRESETS)
    _known(path, "", given, allowed, required=("title", "place", "kind", "graphs"))
    if given["kind"] not in KINDS:
        raise DataError(f"{path}: kind is {given['kind']!r}; it must be one of {', '.join(KINDS)}.")
    for name in given["graphs"]:
        if name not in DATASETS:
            raise DataError(
                f"{path}: graphs has {name!r}; it must be one of {', '.join(DATASETS)}."
            )
    trained = given["kind"] not in UNTRAINED
    if trained:
        _known(path, "", given, allowed, required=("clients", "levels", *PRESETS))
    try:
        presets = {name: _selection(path, name, given[name]) for name in PRESETS if name in given}
    except UsageError as error:  # a method that does not exist
        raise DataError(f"{path}: {error}") from error
    definition = Definition(
        target=path.stem,
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
        figure=_axes(path, given.get("figure")),
        presets=presets,
    )
    if trained:
        _try(path, definition)
    return definition


def _selection(path: Path, preset: str, given: Mapping[str, Any]) -> Selection:
    lists = ("methods", "scores", "quantiles")
    _known(path, f"{preset}.", given, {*lists, "against", "variants"}, required=lists)
    variants = []
    for variant in given.get("variants", ()):
        own = dict(variant)
        if "name" not in own or "methods" not in own:
            raise DataError(f"{path}: {preset}.variants needs a name and methods in each entry.")
        variants.append(Variant(own.pop("name"), _recipes(own.pop("methods")), own))
    return Selection(
        methods=_recipes(given["methods"]),
        scores=tuple(given["scores"]),
        quantiles=tuple(given["quantiles"]),
        against=dict(given.get("against", {})),
        variants=tuple(variants),
    )


def _recipes(names: list[str]) -> tuple[str, ...]:
    return tuple(str(recipe_of(name)) for name in names)


def _axes(path: Path, given: Mapping[str, Any] | None) -> Axes | None:
    if given is None:
        return None
    parts = ("x", "y", "series", "panels")
    _known(path, "figure.", given, {*parts, "style", "where"}, required=parts)
    if given.get("style", "lines") not in STYLES:
        raise DataError(
            f"{path}: figure.style is {given['style']!r}; it must be one of {', '.join(STYLES)}."
        )
    for part in ("x", "series", "panels"):
        if given[part] not in AXES:
            raise DataError(
                f"{path}: figure.{part} is {given[part]!r}; it must be one of {', '.join(AXES)}."
            )
    return Axes(**given)


def _known(
    path: Path, prefix: str, given: Mapping[str, Any], allowed: set[str], required: tuple[str, ...]
) -> None:
    for key in given:
        if key not in allowed:
            raise DataError(f"{path}: there is no entry called {prefix}{key}.")
    for key in required:
        if key not in given:
            raise DataError(f"{path}: the entry {prefix}{key} is missing.")


def _try(path: Path, definition: Definition) -> None:
    """Let the configuration check what it will be given, before anything is computed."""
    for preset, selection in definition.presets.items():
        settings = [definition.settings] + [
            {**definition.settings, **variant.settings} for variant in selection.variants
        ]
        try:
            for own in settings:
                Config.preset(
                    preset,
                    methods=selection.methods,
                    scores=selection.scores,
                    quantiles=selection.quantiles,
                    alphas=definition.alphas,
                    seeds=definition.seeds,
                    **own,
                )
        except UsageError as error:
            raise DataError(f"{path}: {preset}: {error}") from error
