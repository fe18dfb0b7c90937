"""From a party's logits to its sets: temperature, scores, counts for a threshold, sets.

Nothing that shapes a score sees a calibration or test label (docs/guarantee.md): temperature,
mixtures, RAPS's constants and the weights of graph scores come from validation nodes.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.config import recipe_of
from fedcover.conformal.metrics import tally
from fedcover.conformal.protocol import Message, words
from fedcover.graphs.similar import similar_to
from fedcover.graphs.splits import Role
from fedcover.models import mixture
from fedcover.plans import GROUPS, cases_of
from fedcover.training.plan import Index, Rows

if TYPE_CHECKING:
    from fedcover.party.party import Party

Probs = NDArray[np.float64]


def logits(party: "Party", method: str) -> Rows:
    """What the method's models together say about the party's nodes; of a mixture, the logarithm
    of the mixed probabilities."""
    recipe = recipe_of(method)
    if recipe.personal != "mix":
        return party.logits(list(recipe.models.values())[-1])

    def make() -> Rows:
        mixed = mixture.mixed(_probs_by_model(party, method), mixture_weights(party, method))
        return np.log(np.maximum(mixed, mixture.TINY)).astype(np.float32)

    return party.once(("mixed", method), make)


def mixture_weights(party: "Party", method: str) -> Probs:
    """The party's weights of its models, from its own validation nodes and the means of all."""
    grid = mixture.simplex(len(recipe_of(method).models))
    mean = party.knows(f"{method}/mixture")["mean"]
    own = _true_probs(party, method)
    return mixture.choose_weights(own, mean, grid, party.config.personal.shrinkage)


def _temperature(party: "Party", part: str) -> float:
    told = party.told.get(part)
    return 1.0 if told is None else float(told["temperature"])


def _probs_by_model(party: "Party", method: str) -> list[Probs]:
    # Every model is brought to its own temperature first, so that a weight is not spent on
    # correcting confidence.
    return [
        conformal.softmax(party.logits(part), _temperature(party, f"{method}/temperature {kind}"))
        for kind, part in recipe_of(method).models.items()
    ]


def _true_probs(party: "Party", method: str) -> Probs:
    """Validation nodes × models: the probability of the true label."""
    valid = party.data.nodes(Role.VALID)
    y = party.data.y[valid]
    return np.stack([p[valid, y] for p in _probs_by_model(party, method)], axis=1)


def mixture_losses(party: "Party", part: str, query: Message) -> Message:
    """The summed loss of every point of the grid of weights."""
    method = part.rpartition("/")[0]
    grid = mixture.simplex(len(recipe_of(method).models))
    return mixture.mixture_client(grid)(_true_probs(party, method), query)


def temperature(party: "Party", part: str, query: Message) -> Message:
    """What a search for the best temperature asks about validation nodes."""
    method, _, step = part.rpartition("/")
    kind = step.partition(" ")[2]
    found = party.logits(recipe_of(method).models[kind]) if kind else logits(party, method)
    valid = party.data.nodes(Role.VALID)
    local = found[valid], party.data.y[valid]
    return conformal.TEMPERATURES[party.config.temperature].client(local, query)


def probs(party: "Party", method: str) -> Probs:
    """The probabilities of all the party's nodes, at the method's temperature."""

    def make() -> Probs:
        fitted = _temperature(party, f"{method}/temperature")
        return conformal.softmax(logits(party, method), fitted)

    return party.once(("probs", method), make)


def raps(party: "Party", part: str, query: Message) -> Message:
    """What the choice of RAPS's constants asks about validation nodes."""
    valid, data = party.data.nodes(Role.VALID), party.data
    local = (probs(party, part.rpartition("/")[0])[valid], data.y[valid], data.u[valid])
    return conformal.raps_client(local, query)


def diffusion(party: "Party", part: str, query: Message) -> Message:
    """What the choice of a graph score's weights asks about validation nodes."""
    method, _, step = part.rpartition("/")
    valid = party.data.nodes(Role.VALID)
    held = _graph_scores(party, method, step.rpartition(" ")[2])
    return conformal.diffusion_client((held.at(valid), party.data.y[valid]), query)


def _graph_scores(party: "Party", method: str, name: str) -> conformal.GraphScores:
    """A node's scores beside those of its neighbours and similar nodes at this party alone."""
    entry = conformal.GRAPH_SCORES[name]
    base = _plain_scores(party, method, entry.base)
    nodes, weight = similar(party) if entry.similar else (None, None)
    return conformal.graph_scores(base, party.data.edge_index, nodes, weight)


def _plain_scores(party: "Party", method: str, name: str) -> Rows:
    constants, told = None, party.told.get(f"{method}/raps")
    if told is not None:
        nu, k_reg = told["constants"].tolist()
        constants = conformal.RapsConstants(float(nu), int(k_reg))
    return conformal.score(name, probs(party, method), party.data.u, constants)


def similar(party: "Party") -> tuple[Index, Probs]:
    """Each node's similar nodes and their cosines; features alone decide."""
    return party.once("similar", lambda: similar_to(party.graph.x))


def scores(party: "Party", method: str, name: str) -> Rows:
    """Nodes × labels."""

    def make() -> Rows:
        if name not in conformal.GRAPH_SCORES:
            return _plain_scores(party, method, name)
        weights = party.knows(f"{method}/weights of {name}")["weights"].tolist()
        return _graph_scores(party, method, name).combined(conformal.Diffusion(*weights))

    return party.once(("scores", method, name), make)


def member(party: "Party") -> Index:
    """Which threshold each node takes, where classes, parties or groups have their own."""
    kind, data = party.config.calibrate, party.data
    if kind == "class":
        return data.y
    if kind == "client":
        return np.full(len(data.y), party.number)
    assert data.group is not None
    place = {name: number for number, name in enumerate(_group_names(party))}
    return np.array([place[name] for name in data.group_names])[data.group]


def _group_names(party: "Party") -> list[str]:
    """Of all groups of the federation, in their order there."""
    return words(party.knows(GROUPS)["names"]).split("\n")


def quantile(party: "Party", part: str, query: Message) -> Message:
    """What the search for one case's threshold asks about calibration nodes."""
    method, _, step = part.rpartition("/")
    _, rule, name, _ = step.split(" ")
    true = _calibration_scores(party, method, name)
    if party.config.calibrate != "pooled":
        calib = party.data.nodes(Role.CALIB)
        return conformal.group_client((true, member(party)[calib]), query)
    return conformal.RULES[rule].client(true, query)


def spread(party: "Party", part: str, query: Message) -> Message:
    """How the calibration scores of each kind are spread, to tell who is unlike the others."""
    method = part.rpartition("/")[0]
    own = [_calibration_scores(party, method, name) for name in party.config.scores]
    return conformal.spread_client(own, query)


def _calibration_scores(party: "Party", method: str, name: str) -> NDArray[np.float32]:
    """Those of the true labels."""
    calib = party.data.nodes(Role.CALIB)
    return scores(party, method, name)[calib, party.data.y[calib]]


def sets(party: "Party", part: str, query: Message) -> Message:
    """Make the sets of the nodes asked about, keep them, and count what those of test nodes hold.

    Without a test node, the sets of nodes without a label are counted, and the calibration nodes
    that the model is right about.
    """
    method, data, asked = part.rpartition("/")[0], party.data, party.data.asked
    made = party.sets[method] = [
        sets_of(party, method, name, q_hat, asked)
        for (name, _, _), q_hat in zip(cases_of(party.config), query["q_hat"], strict=True)
    ]
    test = data.nodes(Role.TEST)
    judged = test if len(test) else data.nodes(Role.CALIB)
    right = (logits(party, method)[judged].argmax(axis=1) == data.y[judged]).sum()
    counted = np.isin(asked, test) if len(test) else np.ones(len(asked), dtype=bool)
    y = data.y[asked[counted]]
    return {
        "tally": np.stack([tally(one[counted], y) for one in made]),
        "correct": np.array([right], dtype=np.int64),
    }


def own_coverage(party: "Party", method: str, q_hats: NDArray[np.floating]) -> list[int]:
    """By case, how many of the party's calibration scores are at most the threshold."""
    nodes, counts = party.data.nodes(Role.CALIB), []
    for (name, _, _), q_hat in zip(cases_of(party.config), q_hats, strict=True):
        kind, q = party.config.calibrate, q_hat[:1]
        if kind in ("class", "group"):
            q = q_hat[(party.data.y if kind == "class" else member(party))[nodes]]
        counts.append(int((_calibration_scores(party, method, name) <= q).sum()))
    return counts


def sets_of(
    party: "Party", method: str, name: str, q_hat: NDArray[np.floating], nodes: Index
) -> NDArray[np.bool_]:
    """The sets of some of the party's nodes at one threshold, or at one for each label or group."""
    rows = scores(party, method, name)[nodes]
    if not party.config.empty_sets:  # the likeliest label always belongs to the set
        rows[np.arange(len(rows)), rows.argmin(axis=1)] = -np.inf
    kind = party.config.calibrate
    if kind == "class":
        return conformal.prediction_sets(rows, q_hat, per="label")
    if kind == "group":
        return conformal.prediction_sets(rows, q_hat[member(party)[nodes]], per="node")
    return conformal.prediction_sets(rows, float(q_hat[0]))


def thresholds_of(party: "Party") -> int:
    """How many numbers the threshold of one case is, as the party gets it."""
    kind = party.config.calibrate
    if kind == "group":
        return len(_group_names(party))
    return party.classes if kind == "class" else 1
