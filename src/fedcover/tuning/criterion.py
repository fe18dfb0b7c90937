"""What candidates are compared by: arrays of validation nodes in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.conformal.order import exact_rank
from fedcover.conformal.temperature import nll

SCORES = ("lac", "aps", "raps")
"""What a score is chosen from; the first where sizes are equal, or nothing can be compared."""
RESPLITS = 5
COUNTED = 5_000  # nodes counted of a repetition, over its re-splits: from there on one will do


class Validation(NamedTuple):
    """The validation nodes of one repetition, each client's after the other's."""

    logits: NDArray[np.float32]  # (n, C)
    labels: NDArray[np.int64]  # (n,)
    client: NDArray[np.int64]  # (n,)


@dataclass(frozen=True)
class ScoreSize:
    """A score on validation nodes: labels in a set, and how many sets hold the true one."""

    score: str
    size: float
    size_sd: float | None  # over repetitions; None for a single one
    coverage: float


def log_loss(nodes: Validation) -> float:
    """The mean negative log-likelihood: clients send their sums and counts, the server divides."""
    sums = [
        nll(nodes.logits[nodes.client == k], nodes.labels[nodes.client == k])
        for k in np.unique(nodes.client)
    ]
    return float(np.sum(sums) / len(nodes.labels))


def enough(nodes: int, alpha: float) -> bool:
    """Whether one half of so many nodes can calibrate: its rank ⌈(1−α)(n+1)⌉ is at most n."""
    half = nodes // 2
    return half > 0 and exact_rank(alpha, half, 1) <= half


def score_sizes(
    repetitions: Sequence[Validation],
    alpha: float,
    seed: int,
    *,
    scores: Sequence[str] = SCORES,
    temperature: bool = True,
    resplits: int | None = None,
) -> list[ScoreSize]:
    """Mean set size and coverage of each score at a level, by cross-fitting on validation nodes.

    The nodes of a repetition are halved at random, ``resplits`` times (unless given, five, fewer
    where nodes are many); one half calibrates and sets are counted on the other, both ways. The
    calibrating half also fits the temperature and chooses RAPS's constants, so nothing that shapes
    a set has seen the node that it is counted on. Halves are drawn over all clients' nodes
    together: they are one exchangeable sample, and the exact quantile is Theorem 1's for K = 1,
    rank ⌈(1−α)(n+1)⌉. All scores share halves and u.
    """
    sizes = np.empty((len(repetitions), len(scores)))
    coverage = np.empty_like(sizes)
    for r, nodes in enumerate(repetitions):
        rng = np.random.default_rng([seed, r, 0x5C0E])
        times = resplits or min(RESPLITS, max(1, COUNTED // len(nodes.labels)))
        sizes[r], coverage[r] = _crossfit(nodes, alpha, scores, temperature, times, rng)
    spread = sizes.std(axis=0, ddof=1) if len(sizes) > 1 else None
    return [
        ScoreSize(
            name,
            float(sizes[:, s].mean()),
            None if spread is None else float(spread[s]),
            float(coverage[:, s].mean()),
        )
        for s, name in enumerate(scores)
    ]


def _crossfit(
    nodes: Validation,
    alpha: float,
    scores: Sequence[str],
    temperature: bool,
    resplits: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean size and coverage by score; every node is counted once a re-split."""
    n = len(nodes.labels)
    u = rng.random(n)
    kept, hits = np.zeros(len(scores)), np.zeros(len(scores))
    for _ in range(resplits):
        order = rng.permutation(n)
        halves = order[: n // 2], order[n // 2 :]
        for calibrates, counts in (halves, halves[::-1]):
            logits, labels = nodes.logits[calibrates], nodes.labels[calibrates]
            fitted = conformal.fit_temperature(logits, labels) if temperature else 1.0
            probs = conformal.softmax(nodes.logits, fitted)
            constants = None
            if any(conformal.SCORES[name].tuned for name in scores):
                constants = conformal.choose_raps(probs[calibrates], labels, u[calibrates])
            for s, name in enumerate(scores):
                values = conformal.score(name, probs, u, constants)
                true = conformal.true_scores(values[calibrates], labels)
                q_hat = conformal.calibrate([true], alpha).q_hat
                sets = conformal.prediction_sets(values[counts], q_hat)
                kept[s] += sets.sum()
                hits[s] += sets[np.arange(len(counts)), nodes.labels[counts]].sum()
    return kept / (n * resplits), hits / (n * resplits)
