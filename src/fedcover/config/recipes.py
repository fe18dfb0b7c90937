"""A method's full name, ``fed+prior+mix``: where the models come from, and what is made of them."""

from dataclasses import dataclass
from typing import Literal

from fedcover.errors import UsageError

Personal = Literal["", "tuned", "mix"]
PARTS = ("neighbours", "prox", "prior", "tuned", "mix")
BEST = "fed+prox+prior+mix"
"""For all graphs: chosen by benchmarks/choose_default.py on training and validation nodes."""
BEST_LINKED = "fed+neighbours+prox+prior+mix"
"""The same where both ends know the edges between parties."""


@dataclass(frozen=True)
class Method:
    """Which graphs the parties train on, and whether their models are averaged."""

    graph: Literal["own", "gen", "mended", "restored", "whole"] = "own"
    average: bool = True
    model: str | None = None  # the method's own; None: the configuration's
    shared: bool = True  # whether several parties share a model
    federated: bool = True  # whether messages of this method would really cross a network
    simulation: bool = False  # whether it uses what no party has


METHODS: dict[str, Method] = {
    "loc": Method(average=False, shared=False),
    "fed": Method(),
    "gen": Method("gen"),
    "fedsage": Method(model="sage"),
    "fedsage+": Method("mended", model="sage"),
    "restored": Method("restored", federated=False, simulation=True),
    "central": Method("whole", shared=False, federated=False),
}
"""``loc``: every party alone; ``fed``: FedAvg; ``gen``: FedAvg on graphs with generated neighbours;
``fedsage``: FedAvg with GraphSAGE, ``fedsage+`` on graphs mended by NeighGen; ``restored``: FedAvg
with the true neighbours, what a perfect generator would reach; ``central``: one owner, the bound.
"""


@dataclass(frozen=True)
class Recipe:
    """A method with its further parts.

    ``neighbours`` gives every node the mean of its far ends at other parties (docs/neighbours.md).
    ``prox`` holds the parties' steps near the shared model (FedProx). ``prior`` adds each party's
    label mix to the logits, in training and after it. ``tuned`` trains the shared model on at every
    party alone. ``mix`` weighs the shared, the tuned and a local model, on validation nodes.
    """

    base: str
    prox: bool = False
    prior: bool = False
    personal: Personal = ""
    neighbours: bool = False

    @property
    def method(self) -> Method:
        """The method without its further parts."""
        return METHODS[self.base]

    @property
    def shared(self) -> "Recipe":
        """The recipe of the shared model that this one starts from."""
        return Recipe(self.base, self.prox, self.prior, neighbours=self.neighbours)

    @property
    def models(self) -> dict[str, str]:
        """The parts of the models that it needs, by their kind, in the order of training.

        Several recipes may have a model in common: it has one name, and is trained once.
        """
        kinds = {"": ("shared",), "tuned": ("shared", "tuned"), "mix": ("shared", "tuned", "local")}
        found = {kind: f"{self.shared}/{kind}" for kind in kinds[self.personal]}
        # A local model knows nothing of the others, unless its graph does: Gen chooses M and p with
        # the model that is trained after.
        if "local" in found and self.method.graph != "gen":
            found["local"] = f"{Recipe(self.base, neighbours=self.neighbours)}/local"
        return found

    def __str__(self) -> str:
        marks = {"neighbours": self.neighbours, "prox": self.prox, "prior": self.prior}
        parts = (self.base, *(name for name, there in marks.items() if there), self.personal)
        return "+".join(part for part in parts if part)


def recipe_of(name: str) -> Recipe:
    """Read ``base+part+…``; what cannot be read or makes no sense is said in a sentence."""
    bases = [base for base in METHODS if f"{name}+".startswith(f"{base}+")]
    if not bases:
        raise UsageError(
            f"methods has {name!r}; it must be one of {', '.join(METHODS)}, or one of these with "
            "+neighbours, +prox, +prior, +tuned or +mix."
        )
    base = max(bases, key=len)  # fedsage+ has a plus of its own
    parts = name.removeprefix(base).split("+")[1:]
    if not set(parts) <= set(PARTS) or len(set(parts)) < len(parts):
        raise UsageError(
            f"methods has {name!r}; a method may be followed by +neighbours, +prox, +prior, +tuned "
            "or +mix, each once."
        )
    if "tuned" in parts and "mix" in parts:
        raise UsageError(f"methods has {name!r}; +mix already holds the tuned model.")
    personal: Personal = "mix" if "mix" in parts else "tuned" if "tuned" in parts else ""
    if "neighbours" in parts and METHODS[base].graph in ("restored", "whole"):
        raise UsageError(f"methods has {name!r}; {base} has all neighbours already.")
    senseless = [part for part in parts if part not in ("neighbours", "prior")]
    if senseless and not METHODS[base].shared:
        raise UsageError(
            f"methods has {name!r}; {base} has no model that several clients share, so "
            f"+{senseless[0]} means nothing there."
        )
    return Recipe(base, "prox" in parts, "prior" in parts, personal, "neighbours" in parts)
