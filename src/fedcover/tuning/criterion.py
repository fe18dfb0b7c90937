"""What candidates are compared by: arrays of validation nodes in, numbers out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal

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
        conformal.nll(nodes.logits[nodes.client == k], nodes.labels[nodes.client == k])
        for k in np.unique(nodes.client)
    ]
    return float(np.sum(sums) / len(nodes.labels))


def enough(nodes: int, alpha: float) -> bool:
    """Whether one half of so many nodes can calibrate: its rank ⌈(1−α)(n+1)⌉ is at most n."""
    half = nodes // 2
    return half > 0 and conformal.exact_rank(alpha, half, 1) <= half


def score_sizes(
    repetitions: Sequence[Validation], alpha: float, seed: int, *, temperature: bool = True
) -> list[ScoreSize]:
    """Mean set size and coverage of each score at a level, by cross-fitting on validation nodes.

    The nodes of a repetition are halved at random, five times, fewer where nodes are many; one half
    calibrates and sets are counted on the other, both ways. The calibrating half also fits the
    temperature and chooses RAPS's constants, so nothing that shapes a set has seen the node that it
    is counted on. Halves are drawn over all clients' nodes together: they are one exchangeable
    sample, and the exact quantile is Theorem 1's for K = 1, rank ⌈(1−α)(n+1)⌉. All scores share
    halves and u.
    """
    rngs = [np.random.default_rng([seed, r, 0x5C0E]) for r in range(len(repetitions))]
    pairs = zip(repetitions, rngs, strict=True)
    found = np.array([_crossfit(nodes, alpha, temperature, rng) for nodes, rng in pairs])
    return [
        ScoreSize(
            name,
            float(sizes.mean()),
            float(sizes.std(ddof=1)) if len(sizes) > 1 else None,
            float(coverage.mean()),
        )
        for name, (sizes, coverage) in zip(SCORES, found.transpose(2, 1, 0), strict=True)
    ]


def _crossfit(
    nodes: Validation, alpha: float, temperature: bool, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Mean size and coverage (2, scores); every node is counted once a re-split."""
    n = len(nodes.labels)
    resplits = min(RESPLITS, max(1, COUNTED // n))
    u = rng.random(n)
    counted = np.zeros((2, len(SCORES)))
    for _ in range(resplits):
        order = rng.permutation(n)
        halves = order[: n // 2], order[n // 2 :]
        for calibrates, counts in (halves, halves[::-1]):
            logits, labels = nodes.logits[calibrates], nodes.labels[calibrates]
            fitted = conformal.fit_temperature(logits, labels) if temperature else 1.0
            probs = conformal.softmax(nodes.logits, fitted)
            constants = conformal.choose_raps(probs[calibrates], labels, u[calibrates])
            for s, name in enumerate(SCORES):
                values = conformal.score(name, probs, u, constants)
                true = conformal.true_scores(values[calibrates], labels)
                q_hat = conformal.calibrate([true], alpha).q_hat
                sets = conformal.prediction_sets(values[counts], q_hat)
                hits = sets[np.arange(len(counts)), nodes.labels[counts]]
                counted[:, s] += sets.sum(), hits.sum()
    return counted / (n * resplits)
