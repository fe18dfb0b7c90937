"""How the models of a job are trained, from their names and the settings alone.

Everything that is trained or asked in a job has a name, its *part*: ``recipe/step``.
"""

from dataclasses import replace

import torch

from fedcover.config import Config, GenSettings, NeighGenSettings, Recipe, recipe_of
from fedcover.models.gnn import WEIGHTS
from fedcover.training.plan import Plan, Prior

SCALING, GROUPS = "data/scaling", "data/groups"
"""The parts of what parties agree on before training: scales of features, names of groups."""
PROTOTYPES, LINKER, MEND = "gen/prototypes", "gen/links", "fedsage+/mend"
"""The parts of Gen's prototypes, of its link predictor, and of FedSage+'s generators."""
KEYS, MATCHING, SUMS = "neighbours/keys", "neighbours/matching", "neighbours/sums"
"""The parts of +neighbours: public keys, links that both ends know, sums over far ends."""
SUMMARISER = "fed/shared"
"""The model whose encodings or soft labels +neighbours adds up, where it does not add features."""

NO_NEIGHBOURS = 0, 0.0  # the cell "none" of Gen's grid: no prototype is linked to any node

SCREENING = 20  # rounds after which weight decays are compared


def cell_part(recipe: Recipe, prototypes: int, share: float) -> str:
    """The part of the short training that judges one M and one p of Gen, or the cell "none"."""
    cell = "none" if (prototypes, share) == NO_NEIGHBOURS else f"{prototypes} {share!r}"
    return f"{recipe.shared}/cell {cell}"


def cell_of(step: str) -> tuple[int, float] | None:
    """M and p of a step of :func:`cell_part`; None for another step."""
    kind, *cell = step.split(" ")
    if kind != "cell" or not cell:
        return None
    return NO_NEIGHBOURS if cell == ["none"] else (int(cell[0]), float(cell[1]))


def decay_part(recipe: Recipe, decay: float) -> str:
    """The part of the short training that judges one weight decay of one owner's model."""
    return f"{recipe.shared}/decay {decay!r}"


def plan_of(config: Config, classes: int, part: str) -> Plan:
    """How the model called ``part`` is trained."""
    if part == LINKER:
        return link_plan(config.gen)
    name, _, step = part.rpartition("/")
    recipe, personal = recipe_of(name), config.personal
    plan = Plan(
        model=recipe.method.model or config.model,
        classes=classes,
        hidden=config.hidden,
        dropout=config.dropout,
        lr=config.lr,
        rounds=config.rounds,
        patience=config.patience,
        local_epochs=config.local_epochs,
        batch_size=config.batch_size or None,
        average=recipe.method.average,
        prior=Prior(personal.prior_smoothing, personal.prior_strength) if recipe.prior else None,
        prox=personal.prox if recipe.prox else 0.0,
        unit_features=bool(config.unit_features),
    )
    if step == "tuned":
        rounds, epochs = personal.tune_rounds, personal.tune_epochs
        return replace(plan, average=False, rounds=rounds, local_epochs=epochs)
    if step == "local":  # it learns its own label mix by itself
        return replace(plan, average=False, rounds=personal.local_rounds, prior=None)
    if step.startswith("decay "):
        rounds = min(SCREENING, config.rounds)
        return replace(plan, rounds=rounds, weight_decay=float(step.removeprefix("decay ")))
    if cell_of(step):
        # All training nodes at a step, also where the training that follows takes batches: to rank
        # twenty graphs, many small steps on each would cost more than everything else.
        rounds = min(config.gen.screening, config.rounds)
        return replace(plan, rounds=rounds, batch_size=None)
    return plan


def columns_of(config: Config, classes: int, features: int, part: str) -> int:
    """How many features the model called ``part`` reads: those of far ends may have their own."""
    if part == LINKER or not recipe_of(part.rpartition("/")[0]).neighbours:
        return features
    return features + extra_columns(config, classes)


def extra_columns(config: Config, classes: int) -> int:
    """How many columns +neighbours adds to features."""
    extra = {"features": 0, "encoding": config.hidden, "labels": classes}
    return extra[config.neighbour.values]


def link_plan(gen: GenSettings) -> Plan:
    """How Gen's VGAE is trained."""
    return Plan(
        model="gcn",
        classes=2 * gen.link_latent,
        task="links",
        hidden=gen.link_hidden,
        dropout=0.0,
        lr=gen.link_lr,
        rounds=gen.link_rounds,
        local_epochs=gen.link_epochs,
        dtype=torch.float64,  # links are a choice: rounding must not make it
    )


def cases_of(config: Config) -> list[tuple[str, str, float]]:
    """Every score, quantile rule and level whose sets are asked for, in a fixed order."""
    return [(s, q, a) for s in config.scores for q in config.quantiles for a in config.alphas]


def count_links(rule: str, local: int, generated: int, share: float) -> int:
    """How many links Gen makes: for each local node, or at the client altogether."""
    if not (share and generated):
        return 0
    if rule == "node":
        return max(round(share * generated), 1)
    return round(share * local * generated)


def generator_shapes(settings: NeighGenSettings, features: int) -> dict[str, tuple[int, int]]:
    """Of one party's generator in FedSage+, by tensor."""
    latent, hidden = settings.latent, settings.hidden
    shapes = ((latent, hidden), (1, hidden), (hidden, features), (1, features))
    return dict(zip(WEIGHTS, shapes, strict=True))
