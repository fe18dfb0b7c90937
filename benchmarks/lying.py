"""What parties that lie about their calibration scores do to the others, and what helps.

Cora, ten parties, the default recipe, LAC, level 0.9. A liar sends counts of scores that it does
not have: all 0, all 1, or drawn at random; and it may claim 100,000 calibration and test nodes.
Coverage and set size are those of the honest parties' test nodes, means over seeds.
"""

from __future__ import annotations

import numpy as np

import fedcover
from fedcover import conformal
from fedcover.config.recipes import BEST
from fedcover.graphs.splits import Role
from fedcover.party import calibration
from fedcover.simulation.repetition import prepare, settled
from fedcover.simulation.run import Simulation

PARTIES, SEEDS, ALPHA, CLAIM, CAP = 10, 5, 0.1, 100_000, 0.5
LIES = ("none", "all 0", "all 1", "random", "all 0, claims 100,000 nodes")


def main() -> None:
    graph = fedcover.load("cora")
    config = settled(fedcover.Config(clients=PARTIES, methods=(BEST,), seeds=SEEDS), graph)
    repetitions = [prepare(graph, config, seed) for seed in config.seed_range]
    simulation = Simulation(repetitions, config, lambda *_: None)
    federations, outcomes = simulation.train(BEST)
    simulation.calibrate(BEST, federations, outcomes)
    held = []
    for one in federations:
        parties = []
        for party in one.parties:
            scores, y = calibration.scores(party, BEST, "lac"), party.data.y
            calib, test = party.data.nodes(Role.CALIB), party.data.nodes(Role.TEST)
            parties.append((scores[calib, y[calib]], scores[test], y[test]))
        held.append(parties)
    print(
        "| lie | liars | exact | with max_share 0.5 | with robust = liars | with both "
        "| liars found |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for lie in LIES:
        for liars in (0,) if lie == "none" else (1, 2, 3):
            found = [measured(parties, seed, lie, liars) for seed, parties in enumerate(held)]
            *defences, right = np.mean(found, axis=0).tolist()
            cells = [f"{size:.2f} ({covers:.3f})" for covers, size in defences]
            print(f"| {lie} | {liars} | {' | '.join(cells)} | {right[0]:.0%} |", flush=True)
    for left_out in (1, 2, 3):
        rows = [measured(parties, 0, "none", 0, left_out)[2] for parties in held]
        covers, size = np.mean(rows, axis=0)
        print(f"nobody lies, robust {left_out}: {size:.2f} labels, covers {covers:.3f}")


def measured(
    parties: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    seed: int,
    lie: str,
    liars: int,
    left_out: int | None = None,
) -> list[tuple[float, float]]:
    """Coverage and size at the honest parties with each defence; the share of liars found."""
    rng = np.random.default_rng([seed, liars])
    who = set(rng.choice(len(parties), liars, replace=False).tolist())
    sent, shares = [], []
    for k, (scores, _, y) in enumerate(parties):
        claims = k in who and "claims" in lie
        n = CLAIM if claims else len(scores)
        made = np.zeros(n) if "all 0" in lie else np.ones(n) if lie == "all 1" else rng.random(n)
        sent.append(made.astype(np.float32) if k in who else scores)
        shares.append(CLAIM if claims else len(y))
    honest = [parties[k] for k in range(len(parties)) if k not in who]
    apart = conformal.outliers(
        np.stack([conformal.spread_client([own], {})["counts"] for own in sent]),
        liars if left_out is None else left_out,
    )
    kept = [0 if k in apart else share for k, share in enumerate(shares)]
    rows = []
    for asked in (shares, conformal.capped(shares, CAP), kept, conformal.capped(kept, CAP)):
        q_hat = conformal.calibrate(sent, ALPHA, shares=asked).q_hat
        sets = [conformal.prediction_sets(scores, q_hat) for _, scores, _ in honest]
        right = [one[np.arange(len(y)), y] for one, (_, _, y) in zip(sets, honest, strict=True)]
        labels = np.concatenate([one.sum(axis=1) for one in sets])
        rows.append((float(np.concatenate(right).mean()), float(labels.mean())))
    return [*rows, (len(who & set(apart)) / max(liars, 1), 0.0)]


if __name__ == "__main__":
    main()
