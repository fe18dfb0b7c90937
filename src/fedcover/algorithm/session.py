"""One repetition as the coordinator sees it: everything from features' scales to the last count.

What several recipes have in common (``fed+prior`` and ``fed+prior+mix``, say) is done once.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np

from fedcover import fixed_point
from fedcover.algorithm import checks
from fedcover.algorithm.calibrate import Calibrated, agreed, calibrate, temperature
from fedcover.algorithm.fedavg import Trained, alone, choose_decay, fedavg, rounded
from fedcover.algorithm.fedsage import mend
from fedcover.algorithm.gen import choose_cell, linker, silence
from fedcover.algorithm.neighbours import exchange
from fedcover.algorithm.requests import Ask, Census, Conversation, Replies, Sum, Tell, once
from fedcover.config import Config, Recipe, recipe_of
from fedcover.conformal.protocol import Message, text, words
from fedcover.graphs.labels import encode
from fedcover.graphs.scaling import scaling_of
from fedcover.models import mixture
from fedcover.models.vae import noise_note
from fedcover.plans import (
    GROUPS,
    KEYS,
    LINKER,
    MATCHING,
    MEND,
    PROTOTYPES,
    SCALING,
    SUMMARISER,
    SUMS,
    plan_of,
)


@dataclass
class Outcome:
    """One method: its models, what was chosen on validation nodes, and its calibration."""

    recipe: Recipe
    models: dict[str, Trained] = field(default_factory=dict)  # by kind
    chosen: dict[str, Any] = field(default_factory=dict)
    temperatures: dict[str, float] = field(default_factory=dict)  # of the models that are mixed
    notes: list[str] = field(default_factory=list)
    calibrated: Calibrated = field(default_factory=Calibrated)
    parts: list[str] = field(default_factory=list)  # what it is made of, for the ledger

    @property
    def choices(self) -> dict[str, Any]:
        """All that was chosen on validation nodes, for ``run.json``."""
        found = self.calibrated
        return {
            "temperature": found.temperature,
            "raps": found.raps._asdict() if found.raps else None,
            **{name: weights._asdict() for name, weights in found.diffusion.items()},
            **self.chosen,
        }


@dataclass
class Session:
    """Leads one repetition; its methods are conversations.

    ``parties`` are the parties' names, by number. ``impute``: some party may have missing values.
    ``stride``: rounds of a party's own training that one message asks for.
    """

    config: Config
    classes: int
    features: int
    census: Census
    parties: Sequence[str]
    _: KW_ONLY
    impute: bool = False
    stride: int = 1
    groups: tuple[str, ...] = field(default=(), init=False)
    _trained: dict[str, Trained] = field(default_factory=dict, init=False)
    _prototypes: Message | None = field(default=None, init=False)
    _choices: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _mended: bool = field(default=False, init=False)
    _received: Message | None = field(default=None, init=False)  # from +neighbours' exchange

    def prepare(self) -> Conversation[None]:
        """What all methods need: features on one scale, what groups are called, and, before any
        threshold could tell of a calibration node, the sums over far ends."""
        if self.config.standardise or self.impute:
            yield from self._scale()
        asking = any(recipe_of(name).neighbours for name in self.config.methods)
        if asking and len(self.census.counts) > 1:
            yield from self._receive()
        match self.config.calibrate:
            case "group":
                yield from self._name_groups()
            case "client":
                self.groups = tuple(self.parties)
            case "class":
                self.groups = tuple(map(str, range(self.classes)))

    def take_prototypes(self, other: "Session") -> bool:
        """Hand the parties' prototypes to another session, if there are any."""
        other._prototypes = self._prototypes
        return self._prototypes is not None

    def method(self, name: str) -> Conversation[Outcome]:
        """Train a recipe's models, calibrate them, and let the parties make their sets."""
        outcome = yield from self.train(name)
        outcome.calibrated = yield from self.calibrate(name)
        return outcome

    def calibrate(self, name: str) -> Conversation[Calibrated]:
        """Thresholds and sets of a method whose models the parties have."""
        known = self.census, self.groups, self.parties
        return calibrate(name, self.config, self.classes, *known)

    def train(self, name: str) -> Conversation[Outcome]:
        """A recipe's models, each at its best round, at the parties."""
        recipe = recipe_of(name)
        outcome = Outcome(recipe, parts=["data", *recipe.models.values(), name])
        if recipe.neighbours:
            yield from self._exchange(outcome)
        if recipe.method.graph == "gen":  # its grid is judged on graphs that have the sums
            yield from self._generate(recipe, outcome)
        if recipe.method.graph == "mended":
            outcome.parts.append(MEND)
            if not self._mended:
                yield from mend(self.config.neighgen, self.features, self.census)
                self._mended = True
        for kind, part in recipe.models.items():
            if part not in self._trained:
                self._trained[part] = yield from self._model(kind, part, recipe)
            outcome.models[kind] = self._trained[part]
        best = {kind: trained.best for kind, trained in outcome.models.items()}
        choice = self._choices.get(str(recipe.shared), {})
        loss = rounded(outcome.models["shared"].losses[best["shared"]])
        outcome.chosen |= {"best_round": best["shared"] + 1, "valid_loss": loss, **choice}
        outcome.chosen |= {"tuned_rounds": best["tuned"]} if "tuned" in best else {}
        outcome.chosen |= {"local_round": best["local"] + 1} if "local" in best else {}
        if recipe.personal == "mix":
            yield from self._mix(name, outcome)
        return outcome

    def _exchange(self, outcome: Outcome) -> Conversation[None]:
        """What a method is told of the sums over far ends."""
        settings, received = self.config.neighbour, (yield from self._receive())
        outcome.parts += [KEYS, MATCHING, SUMS]
        outcome.parts += [] if settings.values == "features" else [SUMMARISER]
        outcome.chosen |= {"received": received["rows"].tolist()}
        if settings.epsilon is not None:
            within = "one sum" if settings.cap is None else f"up to {settings.cap} sums"
            outcome.notes.append(
                f"+neighbours: what one far end adds to {within} has ε = {settings.epsilon:g}, "
                f"δ = {settings.delta:g}, in each seed; over {self.config.seeds} seeds they add up."
            )
        if not received["rows"].any():
            outcome.notes.append(
                f"+neighbours changes nothing: no sum has {settings.least} or more far ends at "
                "other parties that both ends know."
            )

    def _receive(self) -> Conversation[Message]:
        """The sums over far ends, once for all methods; a model may make what is added up."""
        if self.config.neighbour.values != "features" and SUMMARISER not in self._trained:
            summariser = recipe_of(SUMMARISER.rpartition("/")[0])
            self._trained[SUMMARISER] = yield from self._model("shared", SUMMARISER, summariser)
        if self._received is None:
            size = self.classes, self.features, self.census, self.parties
            self._received = yield from exchange(self.config, *size)
        return self._received

    def _model(self, kind: str, part: str, recipe: Recipe) -> Conversation[Trained]:
        plan = plan_of(self.config, self.classes, part)
        if recipe.method.graph == "whole":
            name, known = str(recipe.shared), (self.config, self.classes)
            self._choices[name] = yield from choose_decay(recipe, *known)
            plan = replace(plan, weight_decay=self._choices[name]["weight_decay"])
        if plan.average:
            return (yield from fedavg(part, plan))
        start = self._trained[recipe.models["shared"]].model if kind == "tuned" else None
        return (yield from alone(part, plan, start, stride=self.stride))

    def _generate(self, recipe: Recipe, outcome: Outcome) -> Conversation[None]:
        config = self.config
        if self._prototypes is None:
            self._prototypes = yield from linker(config, self.features)
        name = str(recipe.shared)
        if name not in self._choices:
            self._choices[name] = yield from choose_cell(
                recipe, config, self.classes, self.census, self._prototypes
            )
        outcome.parts += [PROTOTYPES, LINKER, f"{name}/cell"]
        privacy, trained = config.privacy, self.census.of("train")
        if privacy is not None and privacy.active:
            said = noise_note(list(trained.values()), self.features, config.gen.vae, privacy)
            outcome.notes += [f"gen: {said}"] if said else []
        if privacy is None or not privacy.covered:
            said = silence(self.census, config.gen.vae.min_cluster)
            outcome.notes += [said] if said else []

    def _mix(self, name: str, outcome: Outcome) -> Conversation[None]:
        """The parties learn how well every mixture of the models does on average."""
        for kind in outcome.models:
            part = f"{name}/temperature {kind}"
            outcome.temperatures[kind] = yield from temperature(part, self.config, self.classes)
        models = len(outcome.models)
        client, nothing = mixture.mixture_client(mixture.simplex(models)), np.empty((0, models))
        check, server = checks.Alike(client, nothing), mixture.mixture_server()
        yield from agreed(f"{name}/mixture", "mixture", server, check, "mean")

    def _scale(self) -> Conversation[None]:
        """Mean and spread of every number over all training nodes, from sums alone."""
        trained = self.census.of("train")

        def possible(party: int, reply: Message) -> str:
            most = {"numeric": 1, "missing": 1, "count": trained[party], "sums": 1 << 40}
            for name, array in reply.items():
                low = array[..., :-1] if name == "sums" else array  # the last limb has the sign
                if (low < 0).any() or checks.beyond(array, most[name]):
                    return f"has a value in {name!r} that cannot be"
            return ""

        def ask() -> Conversation[Message]:
            mark = (np.int64, (self.features,))
            check = checks.Arrays({"numeric": mark, "missing": mark}, possible)
            found: Message = yield Sum("data/columns", "columns", check=check)
            scaled = (found["numeric"] > 0) & bool(self.config.standardise)
            columns = np.flatnonzero(scaled | (found["missing"] > 0))
            if not len(columns):
                return {"columns": columns}
            sums = fixed_point.encode_wide(np.zeros((2, len(columns))))
            shapes = {"count": (np.int64, (len(columns),)), "sums": (np.int64, sums.shape)}
            check, query = checks.Arrays(shapes, possible), {"columns": columns}
            total: Message = yield Sum("data/statistics", "statistics", query, check=check)
            moments = fixed_point.decode_wide(total["sums"])
            scaling = scaling_of(np.stack([total["count"], *moments]), columns, scaled)
            return {**query, "mean": scaling.mean, "scale": scaling.scale, "fill": scaling.fill}

        found = yield from once(SCALING, ask())
        if len(found["columns"]):
            yield Tell(SCALING, {k: v for k, v in found.items() if k != "columns"})

    def _name_groups(self) -> Conversation[None]:
        """All parties' groups under one numbering."""
        nodes = self.census.of("nodes")

        def check(party: int, reply: Message) -> str:
            if set(reply) != {"names"} or reply["names"].dtype != np.uint8:
                return "does not name its groups"
            many = words(reply["names"]).count("\n") >= nodes[party]
            return "names more groups than it has nodes" if many else ""

        def ask() -> Conversation[Message]:
            replies: Replies = yield Ask(GROUPS, "groups", check=check)
            names = {n for reply in replies.values() for n in words(reply["names"]).split("\n")}
            _, ordered = encode(sorted(names - {""}))
            return {"names": text("\n".join(ordered))}

        found = yield from once(GROUPS, ask())
        self.groups = tuple(words(found["names"]).split("\n"))
        yield Tell(GROUPS, found)
