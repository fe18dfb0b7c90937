"""Settings of the method Gen, kept apart from what they set in motion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from fedcover.errors import UsageError
from fedcover.training.plan import Plan
from fedcover.models.vae import VaeSettings
from fedcover.party.links import RULES


@dataclass(frozen=True, kw_only=True)
class GenSettings:
    """The paper's grid of M and p, the VAE, and the federated VGAE.

    ``linking`` is ``node`` or ``global``: whether the share p is taken of each node's pairs or of
    all pairs at a client, see :func:`fedcover.party.links.choose_links`. The grid's cells are
    compared after ``screening`` rounds of training.
    """

    prototypes: tuple[int, ...] = (2, 5, 10, 20)  # M: how many a client sends
    shares: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08, 0.10)  # p: of the candidate pairs
    linking: str = "node"
    link_weight: float = 0.25  # of a generated edge in the model; a real one has 1
    vae: VaeSettings = field(default_factory=VaeSettings)
    link_hidden: int = 64
    link_latent: int = 16
    link_rounds: int = 30
    link_epochs: int = 3
    link_lr: float = 0.01
    screening: int = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "vae", settings_from("vae", VaeSettings, self.vae))
        for name, item in (("prototypes", "number"), ("shares", "share")):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values:
                raise UsageError(f"{name} is empty; give at least one {item}.")
            if len(set(values)) < len(values):
                raise UsageError(f"{name} is {values!r}; it must not name a {item} twice.")
        for number in self.prototypes:
            if not _is_whole(number):
                raise UsageError(f"prototypes has {number!r}; every number must be 1 or more.")
        for share in self.shares:
            if not 0 < share <= 1:
                raise UsageError(
                    f"shares has {share:g}; every share must be above 0 and at most 1."
                )
        if self.linking not in RULES:
            raise UsageError(f"linking is {self.linking!r}; it must be one of {', '.join(RULES)}.")
        for name in ("link_hidden", "link_latent", "link_rounds", "link_epochs", "screening"):
            value = getattr(self, name)
            if not _is_whole(value):
                raise UsageError(f"{name} is {value!r}; it must be a whole number of 1 or more.")
        for name in ("link_lr", "link_weight"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise UsageError(f"{name} is {value!r}; it must be a positive number.")

    @property
    def link_plan(self) -> Plan:
        """How the VGAE is trained."""
        return Plan(
            model="gcn",
            classes=2 * self.link_latent,
            task="links",
            hidden=self.link_hidden,
            dropout=0.0,
            lr=self.link_lr,
            rounds=self.link_rounds,
            local_epochs=self.link_epochs,
        )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


Settings = TypeVar("Settings")


def settings_from(name: str, kind: type[Settings], given: object) -> Settings:
    """The settings themselves, or what a mapping (of a stored run, or a file) says they are."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{name} is {given!r}; it must be {kind.__name__} or a mapping of its settings."
        )
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    for key in given:
        if key not in known:
            raise UsageError(f"There is no setting called {key!r}.")
    return kind(**given)
