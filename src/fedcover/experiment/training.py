"""From a recipe to the logits of every node: prepare, train, and make the models personal.

What several recipes have in common (``fed+prior`` and ``fed+prior+mix``, say) is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover.experiment import mixing
from fedcover.experiment.config import Config
from fedcover.experiment.methods import Prepared, Progress, Repetition, Setting
from fedcover.experiment.recipes import Personal, Recipe
from fedcover.federation import Engine, Plan, Trained
from fedcover.federation.ledger import Ledger

Logits = NDArray[np.float32]

KINDS: dict[Personal, tuple[str, ...]] = {
    "": ("shared",),
    "tuned": ("shared", "tuned"),
    "mix": ("shared", "tuned", "local"),
}
"""The models of a recipe in the order in which they are trained."""


@dataclass(frozen=True)
class Outcome:
    """One recipe on one repetition: what is calibrated, and how it came about."""

    logits: Logits  # of the real nodes, in the graph's own order
    prepared: Prepared
    ledger: Ledger
    chosen: dict[str, Any]  # on validation nodes
    seconds: float  # of training
    models: dict[str, Trained]  # by kind
    plans: dict[str, Plan]
    temperatures: dict[str, float]  # of the models that are mixed


@dataclass(frozen=True)
class _Model:
    """One kind of model of all seeds: their logits, and which round was kept."""

    trained: list[Trained]
    logits: list[Logits]


class Trainer:
    """Trains recipes on the same repetitions."""

    def __init__(
        self,
        repetitions: Sequence[Repetition],
        config: Config,
        engine: Engine,
        classes: int,
        report: Progress,
        stop: Callable[[str], None],
        made: dict[Any, Any] | None = None,
    ) -> None:
        """``made``: what other trainers on these repetitions have prepared and share."""
        self._made = {} if made is None else made
        self._repetitions, self._config, self._engine = repetitions, config, engine
        self._classes, self._report, self._stop = classes, report, stop
        self._prepared: dict[Recipe, list[Prepared]] = {}
        self._models: dict[tuple[Recipe, str], _Model] = {}

    def outcomes(self, recipe: Recipe) -> list[Outcome]:
        """One outcome for each repetition."""
        prepared = self._prepare(recipe)
        models = {kind: self._train(recipe, kind) for kind in KINDS[recipe.personal]}
        outcomes = []
        for seed, one in enumerate(prepared):
            ledger = one.ledger.copy()
            own = {kind: model.trained[seed] for kind, model in models.items()}
            for kind, trained in own.items():
                self._record(ledger, recipe, kind, trained)
            chosen = {"best_round": own["shared"].best_round + 1, **one.chosen}
            if "tuned" in own:
                chosen["tuned_rounds"] = own["tuned"].best_round
            if "local" in own:
                chosen["local_round"] = own["local"].best_round + 1
            logits = {kind: model.logits[seed] for kind, model in models.items()}
            final = logits[KINDS[recipe.personal][-1]]
            temperatures: dict[str, float] = {}
            if recipe.personal == "mix":
                final, chosen["mixture"], temperatures = mixing.mix(
                    self._repetitions[seed], logits, self._config, self._engine, ledger
                )
            seconds = sum(trained.seconds for trained in own.values())
            plans = {kind: self._plan(recipe, kind) for kind in own}
            outcomes.append(Outcome(final, one, ledger, chosen, seconds, own, plans, temperatures))
        return outcomes

    def _prepare(self, recipe: Recipe) -> list[Prepared]:
        # Gen's graphs depend on the parts: it chooses M and p with the model that is trained after.
        key = recipe.shared if recipe.base == "gen" else Recipe(recipe.base)
        if key not in self._prepared:
            plan = self._plan(recipe, "shared")
            setting = Setting(self._config, self._engine, plan, self._report, self._made)
            self._prepared[key] = recipe.method.prepare(self._repetitions, setting)
            self._stop(f"prepare {key}")
        return self._prepared[key]

    def _plan(self, recipe: Recipe, kind: str) -> Plan:
        return plan_of(self._config, self._classes, recipe, kind)

    def _train(self, recipe: Recipe, kind: str) -> _Model:
        key = (recipe.shared, kind)
        if kind == "local" and recipe.base != "gen":  # Gen's graphs depend on the parts
            key = (Recipe(recipe.base), kind)
        if key not in self._models:
            prepared, plan = self._prepare(recipe), self._plan(recipe, kind)
            stage = f"{'train' if kind == 'shared' else kind} {key[0]}"
            on_round = partial(_round_done, self._report, stage, plan.rounds)
            start = None
            if kind == "tuned":
                start = [model.weights[0] for model in self._train(recipe, "shared").trained]
            federations = [one.federation for one in prepared]
            trained = self._engine.train(federations, plan, start=start, on_round=on_round)
            logits = [one.logits(model) for one, model in zip(prepared, trained, strict=True)]
            self._models[key] = _Model(trained, logits)
            self._stop(stage)
        return self._models[key]

    def _record(self, ledger: Ledger, recipe: Recipe, kind: str, trained: Trained) -> None:
        plan, clients = self._plan(recipe, kind), len(trained.weights)
        purpose = "" if kind == "shared" else f", {kind}"
        ledger.record_training(
            trained.weights[0], clients, trained.rounds, plan.average, purpose=purpose
        )
        ledger.announce(f"best round{purpose}", np.array([trained.best_round]), clients)


def plan_of(config: Config, classes: int, recipe: Recipe, kind: str = "shared") -> Plan:
    """How a recipe's models of this kind (see ``KINDS``) are trained."""
    method, personal = recipe.method, config.personal
    plan = Plan(
        model=method.model or config.model,
        classes=classes,
        hidden=config.hidden,
        dropout=config.dropout,
        lr=config.lr,
        rounds=config.rounds,
        patience=config.patience,
        local_epochs=config.local_epochs,
        batch_size=config.batch_size or None,
        average=method.average,
        prior=personal.prior if recipe.prior else None,
        prox=personal.prox if recipe.prox else 0.0,
        unit_features=bool(config.unit_features),
    )
    if kind == "tuned":
        rounds, epochs = personal.tune_rounds, personal.tune_epochs
        return replace(plan, average=False, rounds=rounds, local_epochs=epochs)
    if kind == "local":  # it learns its own label mix by itself
        return replace(plan, average=False, rounds=personal.local_rounds, prior=None)
    return plan


def _round_done(report: Progress, stage: str, rounds: int, done: int) -> None:
    report(stage, done, rounds)
