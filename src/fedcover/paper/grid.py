"""The cells of all definitions: what has to be computed, each of it once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from fedcover.config import Config, recipe_of
from fedcover.graphs.catalogue import DATASETS
from fedcover.paper.definition import Definition, Variant
from fedcover.paper.version import code_version

BLOCK = 5
"""Seeds that are trained together. It is fixed: a stack of other seeds may round otherwise."""


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

    @cached_property
    def key(self) -> str:
        """A hash of the configuration and the code version."""
        what = {"graph": self.graph, "config": asdict(self.config), "code": code_version()}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def name(self) -> str:
        """For progress and errors."""
        seeds = self.config.seed_range
        variant = f", {self.variant}" if self.variant else ""
        return (
            f"{self.graph}, K = {self.config.clients}, {self.method}{variant}, "
            f"seeds {seeds[0]}-{seeds[-1]}"
        )

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
    wanted: dict[tuple[Any, ...], Config] = {}
    for definition in definitions:
        for graph, variant, config in _asked(definition, preset):
            key = (graph, variant, _training(config))
            wanted[key] = _union(wanted.get(key), config)
    found = [Cell(graph, preset, variant, config) for (graph, variant, _), config in wanted.items()]
    return sorted(found, key=lambda cell: -cell.weight)


def _asked(definition: Definition, preset: str) -> Iterator[tuple[str, str, Config]]:
    """What one definition asks for: graph, variant and configuration of each of its cells."""
    selection = definition.presets.get(preset)
    if selection is None:
        return
    blocks = range(0, definition.seeds, BLOCK)
    for variant in (Variant("", selection.methods, {}), *selection.variants):
        sides = (definition.graphs, definition.clients, variant.methods, blocks)
        for graph, clients, method, first in product(*sides):
            config = Config.preset(
                preset,
                clients=clients,
                methods=(method,),
                scores=selection.scores,
                quantiles=selection.quantiles,
                alphas=definition.alphas,
                seeds=min(BLOCK, definition.seeds - first),
                first_seed=first,
                **{**definition.settings, **variant.settings},
            )
            yield graph, variant.name, config


def of(definition: Definition, preset: str, everything: Sequence[Cell]) -> list[Cell]:
    """The cells of the grid that one definition shows."""
    own = {
        (cell.graph, cell.variant, _training(cell.config)) for cell in cells([definition], preset)
    }
    return [c for c in everything if (c.graph, c.variant, _training(c.config)) in own]


def _training(config: Config) -> str:
    """What tells two models apart: everything but how they are judged."""
    same = replace(config, scores=("lac",), quantiles=("exact",), alphas=(0.1,))
    return json.dumps(asdict(same), sort_keys=True)


def _union(one: Config | None, other: Config) -> Config:
    if one is None:
        one = other
    return replace(
        one,
        scores=_sorted(one.scores + other.scores),
        quantiles=_sorted(one.quantiles + other.quantiles),
        alphas=_sorted(one.alphas + other.alphas),
    )


def _sorted(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))
