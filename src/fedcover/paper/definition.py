"""What a table or figure of the paper consists of, read from a small TOML file."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from itertools import product
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from fedcover.config import Config, recipe_of
from fedcover.errors import DataError, UsageError
from fedcover.graphs.catalogue import DATASETS

PRESETS = ("default", "paper")
UNTRAINED = ("statistics", "cuts")
"""Kinds about graphs alone: there is no model, so both presets show the same."""
BLOCK = 5
"""Seeds that are trained together. It is fixed: a stack of other seeds may round otherwise."""
ORDER = (
    "datasets", "missing-edges", "main", "clients", "coverage", "accuracy", "scores",
    "scores-coverage", "quantiles", "privacy", "communication",
)  # fmt: skip
"""The targets by their place in the paper."""
OWN = ("clients", "methods", "scores", "quantiles", "alphas", "seeds", "first_seed")
"""Settings that have an entry of their own."""

Height = Literal["set_size", "coverage"]
Axis = Literal["dataset", "clients", "method", "variant", "score", "quantile", "level"]
T = TypeVar("T")


@dataclass(frozen=True)
class Variant:
    """Some methods under changed settings, e.g. Gen with differential privacy."""

    name: str
    methods: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """What one preset shows."""

    methods: tuple[str, ...]
    scores: tuple[str, ...]
    quantiles: tuple[str, ...]
    against: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()

    @property
    def all_variants(self) -> tuple[Variant, ...]:
        """The variants after the methods without any change."""
        return Variant("", self.methods), *self.variants


@dataclass(frozen=True)
class Axes:
    """How a figure lays its rows out: ``y`` over ``x``, a line a ``series``, in ``panels``.

    A heat map has the values of ``y`` in rows of ``series`` and columns of ``x``. ``where`` keeps
    some rows only.
    """

    x: Axis
    y: Height
    series: Axis
    panels: Axis
    style: Literal["lines", "heatmap"] = "lines"
    where: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Definition:
    """One target: its cells, and how they are shown.

    The fields are the entries of its file, whose name is the target's.
    """

    title: str
    kind: Literal["statistics", "cuts", "cells", "change", "bytes"]
    graphs: tuple[str, ...]
    clients: tuple[int, ...] = ()
    levels: tuple[float, ...] = ()
    seeds: int = 5
    published: Literal["main", "scores"] | None = None
    baseline: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    figure: Axes | None = None
    default: Selection | None = None
    paper: Selection | None = None
    target: str = ""

    @property
    def presets(self) -> dict[str, Selection]:
        """What each preset shows."""
        return {name: shown for name in PRESETS if (shown := getattr(self, name))}

    @property
    def alphas(self) -> tuple[float, ...]:
        """The levels of error."""
        return tuple(round(1 - level, 6) for level in self.levels)

    def configs(self, preset: str) -> Iterator[tuple[str, str, Config]]:
        """Graph, variant and configuration of each cell."""
        if preset not in self.presets:
            return
        selection, firsts = self.presets[preset], range(0, self.seeds, BLOCK)
        for variant in selection.all_variants:
            every = product(self.graphs, self.clients, variant.methods, firsts)
            for graph, clients, method, first in every:
                config = Config.preset(
                    preset,
                    clients=clients,
                    methods=(method,),
                    scores=selection.scores,
                    quantiles=selection.quantiles,
                    alphas=self.alphas,
                    seeds=min(BLOCK, self.seeds - first),
                    first_seed=first,
                    **{**self.settings, **variant.settings},
                )
                yield graph, variant.name, config


def folder() -> Path:
    """Where the definitions are: in the package, or beside the sources they were cloned with."""
    packaged = Path(__file__).with_name("definitions")
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "paper"


def read_all(where: Path | None = None) -> dict[str, Definition]:
    """All targets by name, in the order of their place in the paper."""
    where = where or folder()
    found = {path.stem: read(path) for path in sorted(where.glob("*.toml"))}
    if not found:
        raise DataError(f"{where} holds no definition of a table or figure (*.toml).")
    ranked = sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else 99, name))
    return {name: found[name] for name in ranked}


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
        _one_of("graphs", name, DATASETS)
    return {
        target: replace(definition, graphs=kept, seeds=seeds or definition.seeds)
        for target, definition in known.items()
        if (kept := tuple(g for g in definition.graphs if graphs is None or g in graphs))
    }


def read(path: Path) -> Definition:
    """One definition; what is wrong with the file is said with its name and key."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        definition = replace(_made(Definition, given, ""), target=path.stem)
        _check(definition)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a TOML file: {error}.") from error
    except UsageError as error:
        raise DataError(f"{path}: {error}") from error
    return definition


def _made(kind: type[T], given: Mapping[str, Any], place: str) -> T:
    """A table's entries as an object, each as the annotation of its field says."""
    hints, known = get_type_hints(kind), {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    for key in given:
        if key not in known or key == "target":
            raise UsageError(f"there is no entry called {place}{key}.")
    for key, one in known.items():
        if key not in given and one.default is one.default_factory is MISSING:
            raise UsageError(f"the entry {place}{key} is missing.")
    return kind(**{key: _value(f"{place}{key}", value, hints[key]) for key, value in given.items()})


WORDS = {str: "text", int: "a whole number", float: "a number", dict: "a table"}


def _value(entry: str, value: Any, hint: Any) -> Any:
    """The value in its field's type; what is not of that type is refused."""
    if NoneType in get_args(hint):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    inside = get_args(hint)
    if get_origin(hint) is Literal:
        return _one_of(entry, value, inside)
    if get_origin(hint) is tuple:
        kind = dict if is_dataclass(inside[0]) else inside[0]
        if not (isinstance(value, list) and value and all(_is(one, kind) for one in value)):
            raise UsageError(f"{entry} is {value!r}; it must be a list, each {WORDS[kind]}.")
        return tuple(_value(entry, one, inside[0]) for one in value)
    kind = hint if hint in WORDS else dict
    if not _is(value, kind):
        raise UsageError(f"{entry} is {value!r}; it must be {WORDS[kind]}.")
    if hint is Variant:  # its settings stand beside its name
        named = {key: value[key] for key in ("name", "methods") if key in value}
        value = named | {"settings": {k: v for k, v in value.items() if k not in named}}
    if isinstance(hint, type) and is_dataclass(hint):
        return _made(hint, value, f"{entry}.")
    return str(recipe_of(value)) if entry.endswith("methods") else value


def _is(value: Any, kind: type) -> bool:
    allowed = (int, float) if kind is float else kind
    return isinstance(value, allowed) and not isinstance(value, bool)


def _one_of(entry: str, value: str, allowed: Iterable[str]) -> str:
    if value not in allowed:
        raise UsageError(f"{entry} has {value!r}; it must be one of {', '.join(allowed)}.")
    return value


def _check(definition: Definition) -> None:
    """Refuse what does not fit together, before anything is computed."""
    for name in definition.graphs:
        _one_of("graphs", name, DATASETS)
    for column in definition.figure.where if definition.figure else ():
        _one_of("figure.where", column, get_args(Axis))
    if definition.kind in UNTRAINED:
        return
    for name in ("clients", "levels", *PRESETS):
        if not getattr(definition, name):
            raise UsageError(f"the entry {name} is missing.")
    if definition.seeds < 1:
        raise UsageError(f"seeds is {definition.seeds}; it must be a whole number of 1 or more.")
    for preset, selection in definition.presets.items():
        for method in selection.against:
            _one_of(f"{preset}.against", method, selection.methods)
        if definition.baseline is not None:
            _one_of("baseline", definition.baseline, selection.methods)
        for variant in selection.all_variants:
            for key in {**definition.settings, **variant.settings}:
                if key in OWN:
                    raise UsageError(f"settings has {key!r}, which has an entry of its own.")
        list(definition.configs(preset))  # each checks what it is given
