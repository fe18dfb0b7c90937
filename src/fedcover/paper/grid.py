"""The cells of all definitions, each computed once, and the rows of them that a target shows."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import polars as pl

from fedcover.config import Config, recipe_of
from fedcover.graphs.catalogue import DATASETS
from fedcover.paper.definition import Definition
from fedcover.paper.rows import IDENTITY
from fedcover.paper.version import code_version

MODEL = "gcn"
JUDGED: dict[str, Any] = {"scores": ("lac",), "quantiles": ("exact",), "alphas": (0.1,)}
"""Settings that change no model, each with a value that stands for all."""


@dataclass(frozen=True)
class Cell:
    """One graph, number of clients, method and variant on a few seeds: the unit of work."""

    graph: str
    preset: str
    variant: str
    config: Config

    @property
    def method(self) -> str:
        """Its only method."""
        return self.config.methods[0]

    @property
    def identity(self) -> tuple[object, ...]:
        """What its first seed's rows have in the columns dataset to model, and seed."""
        config, model = self.config, recipe_of(self.method).method.model
        place = (self.graph, config.clients, self.method, self.variant, model or config.model)
        return *place, config.first_seed

    @cached_property
    def key(self) -> str:
        """A hash of the configuration and the code version."""
        what = {"graph": self.graph, "config": asdict(self.config), "code": code_version()}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def name(self) -> str:
        """For progress and errors."""
        seeds = self.config.seed_range
        what = f"{self.method}, {self.variant}" if self.variant else self.method
        return f"{self.graph}, K = {self.config.clients}, {what}, seeds {seeds[0]}-{seeds[-1]}"

    @property
    def weight(self) -> float:
        """Roughly how long it takes relative to others; for the order and the time that remains.

        The numbers are fitted to the processor's seconds of both presets' cells in ``results/``.
        """
        stats = DATASETS[self.graph].published
        assert stats is not None
        size = stats.nodes + stats.edges / 2
        recipe = recipe_of(self.method)
        passes = 4.0 if recipe.base in ("gen", "fedsage+") else 1.0
        passes += 0.1 if recipe.personal else 0.0
        if self.config.epsilon is not None:
            passes += 8.0
        if self.config.batch_size:
            steps = 0.16 * stats.nodes / (self.config.clients or 1) / self.config.batch_size
            passes *= 0.6 + 0.033 * steps
        return float(passes * size**0.7 * self.config.seeds)


def cells(definitions: Iterable[Definition], preset: str) -> list[Cell]:
    """The union of what the definitions ask of each model, longest first.

    A model is trained once and judged by every score, rule and level that some definition wants;
    so whichever target is asked for first, the others find its models judged already.
    """
    wanted: dict[tuple[str, str, Config], Config] = {}
    for definition in definitions:
        for graph, variant, config in definition.configs(preset):
            key = _model(graph, variant, config)
            held = wanted.get(key, config)
            both = {name: {*getattr(held, name), *getattr(config, name)} for name in JUDGED}
            judged: dict[str, Any] = {name: tuple(sorted(both[name])) for name in JUDGED}
            wanted[key] = replace(held, **judged)
    found = [Cell(graph, preset, variant, config) for (graph, variant, _), config in wanted.items()]
    return sorted(found, key=lambda cell: -cell.weight)


def of(definition: Definition, preset: str, everything: Sequence[Cell]) -> list[Cell]:
    """The cells of the grid that one definition shows."""
    own = {_model(*wanted) for wanted in definition.configs(preset)}
    return [cell for cell in everything if _model(cell.graph, cell.variant, cell.config) in own]


def _model(graph: str, variant: str, config: Config) -> tuple[str, str, Config]:
    """What tells two models apart: everything but how they are judged."""
    return graph, variant, replace(config, **JUDGED)


def rows_of_target(definition: Definition, preset: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The target's rows, sorted as its definition lists things.

    The grid may hold more scores, rules, levels and seeds of a model.
    """
    shown, model = definition.presets[preset], definition.settings.get("model", MODEL)
    graphs = product(definition.graphs, definition.clients, shown.methods, shown.all_variants)
    judged = list(product(shown.scores, shown.quantiles, definition.alphas))
    listed = [
        (graph, clients, method, variant.name, recipe_of(method).method.model or model, *judge)
        for graph, clients, method, variant in graphs
        if method in variant.methods
        for judge in judged
    ]
    *key, seed = IDENTITY
    order = pl.DataFrame(listed, schema=key, orient="row").with_row_index("place")
    own = rows.filter(pl.col(seed) < definition.seeds).join(order, on=key)
    return own.sort("place", seed).drop("place")


def seeds_of_target(definition: Definition, preset: str, rows: pl.DataFrame) -> pl.DataFrame:
    """One row a graph, K, method and seed: what does not depend on score, rule or level."""
    own = rows_of_target(definition, preset, rows).filter(pl.col("variant") == "")
    return own.unique(["dataset", "clients", "method", "seed"], keep="first", maintain_order=True)
