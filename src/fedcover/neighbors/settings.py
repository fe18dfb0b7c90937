"""Settings of the method Gen, kept apart from what they set in motion."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedcover.errors import UsageError
from fedcover.federation import Plan
from fedcover.models.vae import VaeSettings
from fedcover.neighbors.links import RULES


@dataclass(frozen=True, kw_only=True)
class GenSettings:
    """The paper's grid of M and p, the VAE, and the federated VGAE.

    ``linking`` is ``node`` or ``global``: whether the share p is taken of each node's pairs or of
    all pairs at a client, see :func:`fedcover.neighbors.links.choose_links`. The grid's cells are
    compared after ``screening`` rounds of training.
    """

    prototypes: tuple[int, ...] = (2, 5, 10, 20)  # M: how many a client sends
    shares: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08, 0.10)  # p: of the candidate pairs
    linking: str = "node"
    vae: VaeSettings = field(default_factory=VaeSettings)
    link_hidden: int = 64
    link_latent: int = 16
    link_rounds: int = 30
    link_epochs: int = 3
    link_lr: float = 0.01
    screening: int = 20

    def __post_init__(self) -> None:
        for name in ("link_hidden", "link_latent", "link_rounds", "link_epochs", "screening"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be 1 or more.")
        if not self.prototypes or min(self.prototypes) < 1:
            raise UsageError(f"prototypes has {self.prototypes!r}; every number must be 1 or more.")
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise UsageError(f"shares has {self.shares!r}; every share must be above 0, at most 1.")
        if self.linking not in RULES:
            raise UsageError(f"linking is {self.linking!r}; it must be one of {', '.join(RULES)}.")

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
