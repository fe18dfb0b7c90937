"""A party in one repetition: its data, what it was told, its models, and what it answers.

The same class serves a simulation, where many live in one process, and a site, where it is alone.
"""

from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcover.config import Config, Recipe, recipe_of
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError, UsageError
from fedcover.graphs.scaling import Scaling, scaled
from fedcover.graphs.splits import Role
from fedcover.models import Weights
from fedcover.party import generated, neighbours
from fedcover.party.answers import ANSWERS, SUMS, TOGETHER, TRAINING
from fedcover.party.augment import augment
from fedcover.party.data import PartyData
from fedcover.party.neighgen import mended
from fedcover.plans import LINKER, PROTOTYPES, SCALING, cell_of, plan_of
from fedcover.training.plan import PartyGraph, Plan
from fedcover.training.program import Program, forward

if TYPE_CHECKING:
    from fedcover.training.reference import Reference

T = TypeVar("T")


class Party:
    """One party; ``told`` is what it knows from the coordinator, by the name of the part."""

    def __init__(
        self,
        data: PartyData,
        config: Config,
        classes: int,
        told: MutableMapping[str, Message] | None = None,
        weights: MutableMapping[str, Weights] | None = None,
        recall: Callable[[str], Message | None] = lambda _part: None,
    ) -> None:
        """``recall`` is the state of a training that was under way when its process ended."""
        self.data, self.config, self.classes = data, config, classes
        self.told: MutableMapping[str, Message] = {} if told is None else told
        # Of the models that it has, by part.
        self.weights: MutableMapping[str, Weights] = {} if weights is None else weights
        self.recall = recall
        self.sets: dict[str, list[NDArray[np.bool_]]] = {}  # by method: of the nodes asked about
        self._logits: dict[str, NDArray[np.float32]] = {}
        self.made: dict[Any, Any] = {}  # see once()
        self.training: dict[str, Any] = {}  # under way: a LocalTraining, or FedSage+'s NeighGens
        self.engine: type[Program | Reference] = Program  # how it trains

    @property
    def number(self) -> int:
        """Its own in the federation."""
        return self.data.number

    def knows(self, part: str) -> Message:
        """What it was told of this part."""
        found = self.told.get(part)
        if found is None:
            raise DataError(f"{part} is not known here; the coordinator must send it first.")
        return found

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, worked out the first time and remembered."""
        if key not in self.made:
            self.made[key] = make()
        found: T = self.made[key]
        return found

    def answer(self, part: str, verb: str, round_: int, query: Message) -> Message:
        """The reply to one question."""
        if verb in TRAINING:
            return TRAINING[verb](self, part, round_, query)
        if verb in TOGETHER:
            return TOGETHER[verb]([self], round_, [query], lambda *_: None)[0]
        if verb in SUMS:
            return SUMS[verb]([self], round_, [query])
        if verb not in ANSWERS:
            raise UsageError(f"{verb!r} is nothing that a party can do.")
        return ANSWERS[verb](self, part, query)

    def tell(self, part: str, arrays: Message) -> None:
        """Remember what the coordinator has found out."""
        self.told[part] = arrays

    # Its graphs.

    @cached_property
    def graph(self) -> PartyGraph:
        """Its own graph, as training sees it: features on the scale that the parties agreed on."""
        data = self.data
        train, valid = data.nodes(Role.TRAIN), data.nodes(Role.VALID)
        return PartyGraph(self._on_scale(data), data.edge_index, data.y, train, valid)

    @cached_property
    def scaling(self) -> Scaling | None:
        """How the features were brought to one scale; None: they are as they were."""
        told = self.told.get(SCALING)
        return None if told is None else Scaling(told["mean"], told["scale"], told["fill"])

    def _on_scale(self, data: PartyData) -> Any:
        return data.x if self.scaling is None else scaled(data.x, self.scaling, data.missing)

    @cached_property
    def restored(self) -> PartyGraph:
        """Its graph with what the cut took: only a simulation has it."""
        far, links = self.data.far, self.data.far_links
        assert far is not None
        assert links is not None
        return augment(self.graph, self._on_scale(far), links)

    def plan(self, part: str) -> Plan:
        """How the model of this part is trained."""
        plan, name = plan_of(self.config, self.classes, part), part.rpartition("/")[0]
        decay = self.told.get(f"{name}/decay")
        return plan if decay is None else replace(plan, weight_decay=float(decay["weight_decay"]))

    def graph_of(self, part: str) -> PartyGraph:
        """The graph that the model of this part is trained on."""
        if part == LINKER:
            return generated.unlinked(self)
        name, _, step = part.rpartition("/")
        recipe = recipe_of(name)
        if recipe.neighbours:
            return neighbours.joined(self, self._graph_of(recipe, step))
        return self._graph_of(recipe, step)

    def _graph_of(self, recipe: Recipe, step: str) -> PartyGraph:
        match recipe.method.graph:
            case "restored":
                return self.restored
            case "mended":
                return mended(self)
            case "gen" if cell := cell_of(step):
                return generated.augmented(self, *cell)
            case "gen":
                return generated.chosen(self, str(recipe.shared))
        return self.graph

    # Its models.

    def has_model(self, part: str, weights: Weights, logits: NDArray[np.float32] | None) -> None:
        """Keep a trained model, and what it says about the own nodes if that is known already."""
        self.weights[part] = weights
        if logits is not None:
            self._logits[part] = logits[: len(self.data.y)]

    def take_linker(self, other: "Party") -> None:
        """Use the prototypes that another party of the same data got, and its link predictor."""
        self.told[PROTOTYPES] = other.told[PROTOTYPES]
        self.has_model(LINKER, other.weights[LINKER], other.logits(LINKER))
        self.made |= {name: other.made[name] for name in ("got", "received") if name in other.made}

    def logits(self, part: str) -> NDArray[np.float32]:
        """What the model of this part says about the party's own nodes."""
        if part not in self._logits:
            (rows,) = forward([self.graph_of(part)], [self.weights[part]], self.plan(part))
            self._logits[part] = rows[: len(self.data.y)]
        return self._logits[part]
