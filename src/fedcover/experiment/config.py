"""Everything that determines a run, in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any

from fedcover.conformal.quantiles import RULES
from fedcover.conformal.scores import SCORES
from fedcover.errors import UsageError
from fedcover.experiment.methods import METHODS
from fedcover.graphs.partition import METHODS as PARTITIONS
from fedcover.models import MODELS

TEMPERATURES = ("pooled", "averaged", "none")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run's settings; the defaults are the preset ``default`` (the guarantee holds).

    Every seed is a whole repetition: it draws the partition, the split, the initial weights, the
    dropout masks and APS's u anew, and all methods share it, so that they can be compared in
    pairs.
    """

    clients: int | None = 10
    partition: str = "metis"
    methods: tuple[str, ...] = ("loc", "fed", "central")
    model: str = "gcn"
    scores: tuple[str, ...] = ("aps", "raps", "lac")
    quantiles: tuple[str, ...] = ("exact",)
    alphas: tuple[float, ...] = (0.05, 0.1, 0.2)
    seeds: int = 5
    first_seed: int = 0
    rounds: int = 100
    local_epochs: int = 3
    batch_size: int = 0  # training nodes a step; 0: all at once
    hidden: int = 64
    dropout: float = 0.5
    lr: float = 0.01
    temperature: str = "pooled"
    train: float = 0.2
    valid: float = 0.2
    resplits: int = 100
    empty_sets: bool = True

    def __post_init__(self) -> None:
        _known("methods", self.methods, METHODS)
        _known("scores", self.scores, SCORES)
        _known("quantiles", self.quantiles, RULES)
        _known("partition", (self.partition,), PARTITIONS)
        _known("model", (self.model,), MODELS)
        _known("temperature", (self.temperature,), TEMPERATURES)
        if not self.alphas:
            raise UsageError("alphas is empty; give at least one level between 0 and 1.")
        for alpha in self.alphas:
            if not 0 < alpha < 1:
                raise UsageError(
                    f"alphas has {alpha:g}; every alpha must lie strictly between 0 and 1."
                )
        _distinct("alphas", tuple(f"{a:g}" for a in self.alphas))
        if self.partition != "given" and self.clients is None:
            raise UsageError(f"clients is missing; partition {self.partition!r} needs a number.")
        for name in ("clients", "seeds", "rounds", "local_epochs", "hidden", "resplits"):
            value = getattr(self, name)
            if not (value is None and name == "clients"):
                _whole(name, value, at_least=1)
        _whole("batch_size", self.batch_size, at_least=0)
        _whole("first_seed", self.first_seed, at_least=0)
        for name in ("dropout", "valid"):
            share = getattr(self, name)
            if not 0 <= share < 1:
                raise UsageError(f"{name} is {share:g}; it must be at least 0 and below 1.")
        if not 0 < self.train < 1:
            raise UsageError(f"train is {self.train:g}; it must lie strictly between 0 and 1.")
        if not 0 < self.lr < float("inf"):
            raise UsageError(f"lr is {self.lr:g}; it must be a positive number.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Config:
        """A named preset with changes; ``None`` means: as the preset has it."""
        if name not in PRESETS:
            raise UsageError(f"preset is {name!r}; it must be one of {', '.join(PRESETS)}.")
        known = {f.name for f in fields(cls)}
        unknown = set(changes) - known
        if unknown:
            raise UsageError(f"There is no setting called {sorted(unknown)[0]!r}.")
        given = {key: value for key, value in changes.items() if value is not None}
        if given.get("partition") == "given":
            given.setdefault("clients", changes.get("clients"))
        return replace(cls(**PRESETS[name]), **given)

    @property
    def seed_range(self) -> range:
        """The seeds of the repetitions."""
        return range(self.first_seed, self.first_seed + self.seeds)


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # The paper's section 5.1: deterministic APS, quantile averaging, averaged temperatures,
    # batches of 32. It does not state the rounds.
    "paper": {
        "methods": ("loc", "fed"),
        "scores": ("aps-det",),
        "quantiles": ("average",),
        "temperature": "averaged",
        "batch_size": 32,
    },
}


def _known(setting: str, values: tuple[str, ...], allowed: Any) -> None:
    if not values:
        raise UsageError(f"{setting} is empty; choose from {', '.join(allowed)}.")
    for value in values:
        if value not in allowed:
            raise UsageError(f"{setting} has {value!r}; it must be one of {', '.join(allowed)}.")
    _distinct(setting, values)


def _whole(setting: str, value: Any, *, at_least: int) -> None:
    if not isinstance(value, Integral) or value < at_least:
        raise UsageError(
            f"{setting} is {value!r}; it must be a whole number of {at_least} or more."
        )


def _distinct(setting: str, values: tuple[str, ...]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise UsageError(f"{setting} names {value!r} twice.")
