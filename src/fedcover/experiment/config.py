"""Everything that determines a run, in one frozen object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from fedcover.conformal.checks import check_shares
from fedcover.conformal.graph_scores import GRAPH_SCORES
from fedcover.conformal.mondrian import GROUP_RULES
from fedcover.conformal.quantiles import RULES
from fedcover.conformal.scores import SCORES
from fedcover.errors import UsageError
from fedcover.recipes import METHODS
from fedcover.recipes import BEST, recipe_of
from fedcover.graphs.partition import METHODS as PARTITIONS
from fedcover.models import MODELS
from fedcover.neighbors.neighgen import NeighGenSettings
from fedcover.neighbors.settings import GenSettings, settings_from
from fedcover.personal import PersonalSettings
from fedcover.privacy import Privacy
from fedcover.privacy import PROTOTYPES

CLIENTS = 10
"""How many clients the graph is divided among, unless it brings its own."""

CALIBRATIONS = ("pooled", "client", "class", "group")
"""What has a threshold of its own: nothing, or every client, class or group of nodes."""

TEMPERATURES = ("pooled", "averaged", "none")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run's settings; the defaults are the preset ``default`` (the guarantee holds).

    Every seed is a whole repetition: it draws the partition, the split, the initial weights, the
    dropout masks and APS's u anew, and all methods share it, so that they can be compared in
    pairs.

    ``clients`` is 10 if not set, but stays None for the partition ``given``, whose column knows
    the number. ``mixture`` is for the quantile rule of that name: a test node is client k's with
    that share, whatever its scale. Settings with several values take any sequence, or one value
    alone.
    """

    clients: int | None = None
    partition: str = "metis"
    methods: tuple[str, ...] = ("loc", "fed", BEST, "central")
    model: str = "gcn"
    scores: tuple[str, ...] = ("lac",)
    quantiles: tuple[str, ...] = ("exact",)
    mixture: tuple[float, ...] | None = None  # clients' shares of test nodes; None: as they are
    calibrate: str = "pooled"  # one threshold for all, or one for each client, class or group
    alphas: tuple[float, ...] = (0.05, 0.1, 0.2)
    seeds: int = 5
    first_seed: int = 0
    rounds: int = 100
    patience: int | None = None  # rounds without a lower validation loss until it stops
    local_epochs: int = 3
    batch_size: int = 0  # training nodes a step; 0: all at once
    hidden: int = 64
    dropout: float = 0.5
    lr: float = 0.03
    unit_features: bool | None = None  # rows of length 1; None: if features look like words
    standardise: bool | None = None  # numbers by training statistics; None: those of own tables
    temperature: str = "pooled"
    train: float = 0.2
    valid: float = 0.2
    resplits: int = 100
    empty_sets: bool = True
    epsilon: float | None = None  # differential privacy of Gen's prototypes; None: none
    noise: float | None = None  # its noise multiplier, in place of epsilon
    dp_prototypes: str = "prior"  # "reconstructions", the paper's, is not covered by epsilon
    gen: GenSettings = field(default_factory=GenSettings)
    neighgen: NeighGenSettings = field(default_factory=NeighGenSettings)
    personal: PersonalSettings = field(default_factory=PersonalSettings)

    def __post_init__(self) -> None:
        # The only place where a frozen object is still written to: one spelling for each value.
        for name in ("methods", "scores", "quantiles", "alphas"):
            object.__setattr__(self, name, _several(name, getattr(self, name)))
        object.__setattr__(self, "methods", _recipes(self.methods))
        _known("scores", self.scores, SCORES | GRAPH_SCORES)
        _known("quantiles", self.quantiles, RULES)
        _known("calibrate", (self.calibrate,), CALIBRATIONS)
        _refuse_ungrouped(self)
        _known("partition", (self.partition,), PARTITIONS)
        _known("model", (self.model,), MODELS)
        _known("temperature", (self.temperature,), TEMPERATURES)
        object.__setattr__(self, "alphas", _levels(self.alphas))
        if self.clients is None and self.partition != "given":
            object.__setattr__(self, "clients", CLIENTS)
        for name in (
            "clients",
            "seeds",
            "rounds",
            "patience",
            "local_epochs",
            "hidden",
            "resplits",
        ):
            value = getattr(self, name)
            if not (value is None and name in ("clients", "patience")):
                _whole(name, value, at_least=1)
        object.__setattr__(self, "mixture", _mixture(self))
        _whole("batch_size", self.batch_size, at_least=0)
        _whole("first_seed", self.first_seed, at_least=0)
        for name in ("dropout", "valid"):
            share = getattr(self, name)
            if not (_is_number(share) and 0 <= share < 1):
                raise UsageError(f"{name} is {_shown(share)}; it must be at least 0 and below 1.")
        if not (_is_number(self.train) and 0 < self.train < 1):
            raise UsageError(
                f"train is {_shown(self.train)}; it must lie strictly between 0 and 1."
            )
        if not (_is_number(self.lr) and 0 < self.lr < float("inf")):
            raise UsageError(f"lr is {_shown(self.lr)}; it must be a positive number.")
        for name in ("epsilon", "noise"):
            value = getattr(self, name)
            if value is not None and not _is_number(value):
                raise UsageError(f"{name} is {value!r}; it must be a number.")
        if self.epsilon == float("inf"):
            object.__setattr__(self, "epsilon", None)
        if self.epsilon is not None and self.noise is not None:
            raise UsageError("epsilon and noise are both set; give one of them.")
        _known("dp_prototypes", (self.dp_prototypes,), PROTOTYPES)
        if self.privacy is None and self.dp_prototypes != "prior":
            raise UsageError(
                f"dp_prototypes is {self.dp_prototypes!r}, which needs epsilon or noise."
            )
        object.__setattr__(self, "gen", settings_from("gen", GenSettings, self.gen))
        neighgen = settings_from("neighgen", NeighGenSettings, self.neighgen)
        object.__setattr__(self, "neighgen", neighgen)
        personal = settings_from("personal", PersonalSettings, self.personal)
        object.__setattr__(self, "personal", personal)
        if not isinstance(self.empty_sets, bool | np.bool_):
            raise UsageError(f"empty_sets is {self.empty_sets!r}; it must be True or False.")
        for name in ("unit_features", "standardise"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_ | None):
                raise UsageError(f"{name} is {value!r}; it must be True, False or None.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Config:
        """A named preset with changes; ``None`` means: as the preset has it.

        ``gen_shares`` changes ``gen.shares``, and so on for all settings of ``gen``.
        """
        if name not in PRESETS:
            raise UsageError(f"preset is {name!r}; it must be one of {', '.join(PRESETS)}.")
        inner = {f"gen_{f.name}" for f in fields(GenSettings)}
        unknown = set(changes) - {f.name for f in fields(cls)} - inner
        if unknown:
            raise UsageError(f"There is no setting called {sorted(unknown)[0]!r}.")
        given = {key: value for key, value in changes.items() if value is not None}
        settings = PRESETS[name] | {k: v for k, v in given.items() if k not in inner}
        of_gen = {k.removeprefix("gen_"): v for k, v in given.items() if k in inner}
        if of_gen:
            settings["gen"] = replace(settings.get("gen", GenSettings()), **of_gen)
        return cls(**settings)

    @property
    def privacy(self) -> Privacy | None:
        """How Gen's prototypes are protected."""
        if self.epsilon is None and self.noise is None:
            return None
        return Privacy(epsilon=self.epsilon, noise=self.noise, prototypes=self.dp_prototypes)

    @property
    def seed_range(self) -> range:
        """The seeds of the repetitions."""
        return range(self.first_seed, self.first_seed + self.seeds)


_PLAIN: dict[str, Any] = {"lr": 0.01, "unit_features": False}

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # FedAvg without any of the parts that make sets sharper, and the usual scores.
    "plain": {
        **_PLAIN,
        "methods": ("loc", "fed", "central"),
        "scores": ("aps", "raps", "lac"),
    },
    # The paper's section 5.1: deterministic APS, quantile averaging, averaged temperatures,
    # batches of 32. It does not state the rounds; patience ends what batches of 32 finish early.
    "paper": {
        **_PLAIN,
        "methods": ("loc", "fed", "gen"),
        "scores": ("aps-det",),
        "quantiles": ("average",),
        "temperature": "averaged",
        "batch_size": 32,
        "patience": 10,
        "gen": GenSettings(linking="global", link_weight=1.0, screening=5),
    },
}


def _several(setting: str, values: Any) -> tuple[Any, ...]:
    """A tuple of what was given: a sequence of values, or one value alone."""
    if isinstance(values, str) or _is_number(values):
        return (values,)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return tuple(values.tolist())
    if not isinstance(values, Sequence) or isinstance(values, bytes):
        what = "numbers" if setting in ("alphas", "mixture") else "words"
        raise UsageError(f"{setting} is {values!r}; it must be a tuple of {what}.")
    return tuple(values)


def _recipes(names: tuple[Any, ...]) -> tuple[str, ...]:
    """The methods, each spelt as its recipe spells it."""
    if not names:
        raise UsageError(f"methods is empty; choose from {', '.join(METHODS)}.")
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"methods has {name!r}; it must be a word.")
    spelt = tuple(str(recipe_of(name)) for name in names)
    _distinct("methods", spelt)
    return spelt


def _known(setting: str, values: tuple[Any, ...], allowed: Any) -> None:
    if not values:
        raise UsageError(f"{setting} is empty; choose from {', '.join(allowed)}.")
    for value in values:
        if not isinstance(value, str) or value not in allowed:
            raise UsageError(f"{setting} has {value!r}; it must be one of {', '.join(allowed)}.")
    _distinct(setting, values)


def _levels(alphas: tuple[Any, ...]) -> tuple[float, ...]:
    if not alphas:
        raise UsageError("alphas is empty; give at least one level between 0 and 1.")
    for alpha in alphas:
        if not (_is_number(alpha) and 0 < alpha < 1):
            raise UsageError(
                f"alphas has {_shown(alpha)}; every alpha must lie strictly between 0 and 1."
            )
    levels = tuple(float(alpha) for alpha in alphas)
    _distinct("alphas", levels)
    return levels


def _mixture(config: Config) -> tuple[float, ...] | None:
    """The clients' shares, normalised."""
    if config.mixture is None:
        return None
    if "mixture" not in config.quantiles:
        raise UsageError("mixture is set, which needs 'mixture' among the quantiles.")
    given = _several("mixture", config.mixture)
    clients = len(given) if config.clients is None else config.clients
    shares = tuple(float(share) for share in check_shares(given, clients, "mixture"))
    held = tuple(map(float, given))
    # Shares that were normalised before stay: dividing once more would move their last bits.
    return held if abs(sum(held) - 1) <= len(held) * np.finfo(np.float64).eps else shares


def _refuse_ungrouped(config: Config) -> None:
    """Only order statistics are found group by group."""
    unfit = [rule for rule in config.quantiles if rule not in GROUP_RULES]
    if config.calibrate != "pooled" and unfit:
        raise UsageError(
            f"quantiles has {unfit[0]!r}, which has one threshold for all; with calibrate "
            f"{config.calibrate!r} it must be one of {', '.join(GROUP_RULES)}."
        )


def _whole(setting: str, value: Any, *, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < at_least:
        raise UsageError(
            f"{setting} is {value!r}; it must be a whole number of {at_least} or more."
        )


def _is_number(value: Any) -> bool:
    """Whether it is a real number; Python counts True and False among them, we do not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return f"{float(value):.12g}" if _is_number(value) else repr(value)


def _distinct(setting: str, values: tuple[Any, ...]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise UsageError(f"{setting} names {value!r} twice.")
