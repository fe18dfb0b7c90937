"""Non-conformity scores of **all** labels, (n, C) from probabilities (n, C), and sets from them.

The larger the score, the stranger the label. With f the probabilities of a node, π its labels in
descending order of f (equal ones by index), V(x, k) = f_π(1) + … + f_π(k), and u one uniform number
per node:

========= ======================================= =====================================
name      S(x, π(k))                              source
========= ======================================= =====================================
lac       1 − f_π(k)                              the paper, appendix "Comparison"
aps       V(x, k) − u·f_π(k)                      Romano et al. 2020; docs/scores.md
aps-det   V(x, k)                                 the paper, section 3
raps      V(x, k) − u·f_π(k) + ν·max(k − k_reg, 0) Angelopoulos et al. 2021; docs/scores.md
========= ======================================= =====================================

(The paper's appendix prints RAPS with the sign of a *conformity* score.) Sums run in float64 over
the sorted probabilities, so a permutation of the labels permutes the scores and changes no bit of
them; results are float32, the type the exact quantile searches. Cumulative scores are divided by
the row's own total, so the last label's V is exactly 1.

Any score can tie where the model saturates, not aps-det alone. Once a node's top probability is 1
in float32, each other label scores 1 (in raps plus its rank's penalty), whatever u is. The top
label scores 1 in aps-det, and 0 in lac if the probabilities came as float32; u keeps it apart in
aps and raps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcover.conformal.checks import at_labels, check_probs, check_scores, check_u
from fedcover.errors import DataError, UsageError

Scores = NDArray[np.float32]
Sets = NDArray[np.bool_]  # nodes × labels


class RapsConstants(NamedTuple):
    """RAPS's penalty: every rank beyond ``k_reg`` costs ``nu`` (chosen by ``choose_raps``)."""

    nu: float
    k_reg: int


class Ranked(NamedTuple):
    """Per label, in label order: its share f, the mass V down to it, its rank from 1."""

    share: NDArray[np.float64]
    mass: NDArray[np.float64]
    rank: NDArray[np.intp]


def ranked(probs: ArrayLike) -> Ranked:
    """Sort every node's labels by descending probability, equal ones by index."""
    p = check_probs(probs)
    order = np.argsort(-p, axis=1, kind="stable")
    position = np.empty_like(order)
    np.put_along_axis(position, order, np.arange(p.shape[1])[None, :], axis=1)
    cumulative = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
    total = cumulative[:, -1:]
    mass = np.take_along_axis(cumulative / total, position, axis=1)
    return Ranked(share=p / total, mass=mass, rank=position + 1)


def lac(probs: ArrayLike) -> Scores:
    """Least ambiguous classifier: S = 1 − f_y."""
    return (1.0 - check_probs(probs)).astype(np.float32)


def aps_det(probs: ArrayLike) -> Scores:
    """Deterministic APS, the paper's section 3: S = V(x, k); the last label's is exactly 1."""
    return ranked(probs).mass.astype(np.float32)


def aps(probs: ArrayLike, u: ArrayLike) -> Scores:
    """Randomised APS: S = V(x, k) − u·f, one u per node, so that sets are nested in alpha."""
    return raps(probs, u, nu=0.0, k_reg=1)


def raps(probs: ArrayLike, u: ArrayLike, nu: float, k_reg: int) -> Scores:
    """Regularised APS: randomised APS plus ν·max(rank − k_reg, 0), outside the random term."""
    return penalised(ranked(probs), u, nu, k_reg)


def penalised(labels: Ranked, u: ArrayLike, nu: float, k_reg: int) -> Scores:
    """RAPS of labels that are ranked already, to try many constants on one sort."""
    if not (nu >= 0.0 and np.isfinite(nu)):
        raise UsageError(f"nu is {nu}; it must be a finite number, 0 or more.")
    if k_reg < 0:
        raise UsageError(f"k_reg is {k_reg}; it must be 0 or more.")
    u = check_u(u, len(labels.rank))[:, None]
    penalty = nu * np.maximum(labels.rank - k_reg, 0)
    return (labels.mass - u * labels.share + penalty).astype(np.float32)


def true_scores(scores: NDArray[np.floating], labels: ArrayLike) -> Scores:
    """Pick every node's score of its true label: (n, C) and (n,) give (n,)."""
    return at_labels(scores, labels).astype(np.float32)


@dataclass(frozen=True)
class Score:
    """An entry of ``SCORES``: ``compute(probs, u, constants)`` and what it needs.

    ``ties``: distinct nodes share scores by construction, so the upper end of the coverage band
    never applies. False does not rule ties out: a saturated model ties any score.
    """

    compute: Callable[[ArrayLike, Any, Any], Scores]
    randomised: bool = False
    tuned: bool = False
    ties: bool = False


SCORES: dict[str, Score] = {
    "lac": Score(lambda probs, _u, _constants: lac(probs)),
    "aps": Score(lambda probs, u, _constants: aps(probs, u), randomised=True),
    "aps-det": Score(lambda probs, _u, _constants: aps_det(probs), ties=True),
    "raps": Score(
        lambda probs, u, constants: raps(probs, u, *constants), randomised=True, tuned=True
    ),
}


def score(
    name: str, probs: ArrayLike, u: ArrayLike | None = None, constants: RapsConstants | None = None
) -> Scores:
    """Compute the score called ``name``; give ``u`` and ``constants`` always, it takes its own."""
    if name not in SCORES:
        raise UsageError(f"score is {name!r}; it must be one of {', '.join(SCORES)}.")
    entry = SCORES[name]
    if entry.randomised and u is None:
        raise UsageError(f"u is missing; score {name!r} needs one uniform number per node.")
    if entry.tuned and constants is None:
        raise UsageError(f"constants are missing; score {name!r} needs those of choose_raps.")
    return entry.compute(probs, u, constants)


def prediction_sets(
    scores: ArrayLike, q_hat: ArrayLike, per: Literal["node", "label"] | None = None
) -> Sets:
    """Theorem 1's rule: label y is in the set of node i exactly if scores[i, y] ≤ q̂, in float32.

    ``q_hat`` is one threshold; with ``per="node"`` one for each node (calibration by client or
    group), with ``per="label"`` one for each label (calibration by class).
    """
    array, q = check_scores(scores), check_scores(q_hat, "q_hat")
    shape = () if per is None else array.shape[:1] if per == "node" else array.shape[-1:]
    if q.shape != shape:
        must = f"{shape}, one threshold per {per}"
        if per is None:
            must = "one number, or per must say what each of them is for"
        raise DataError(f"q_hat has shape {q.shape}; it must be {must}.")
    return np.asarray(array <= (q[:, None] if per == "node" else q))


def add_top_label(sets: Sets, probs: ArrayLike) -> Sets:
    """Give every empty set its most probable label (``--no-empty-sets``); others stay.

    Sets only grow, so the lower end of the coverage guarantee stands. For many re-splits at once,
    set the top label's score to −inf after the calibration scores are taken. Both ways agree: every
    score here is lowest at the top label, so a set that lacks it is empty.
    """
    result = sets.copy()
    empty = np.flatnonzero(~sets.any(axis=1))
    result[empty, np.argmax(check_probs(probs)[empty], axis=1)] = True
    return result


def crossing_sets(probs: ArrayLike, q_hat: float) -> Sets:
    """The paper's section 3 rule: the top k* labels, k* = min {k : V(x, k) ≥ q̂}.

    It includes the label that crosses q̂, so it holds one label more than S ≤ q̂ unless V meets q̂
    exactly. An option for deterministic APS, off by default (docs/scores.md).
    """
    mass, threshold = aps_det(probs), check_scores(q_hat, "q_hat")
    descending = np.argsort(-check_probs(probs), axis=1, kind="stable")
    mass_before = np.roll(np.take_along_axis(mass, descending, axis=1), 1, axis=1)
    inside = mass_before < threshold
    inside[:, 0] = True  # even at q̂ = −inf, where no mass lies below
    return np.take_along_axis(inside, np.argsort(descending, axis=1), axis=1)
