"""The conformal core with someone else's model: a random forest of scikit-learn, and no graph.

Three hospitals share a forest that was trained somewhere. Each scores its own calibration patients
and sends counts, nothing else; together they find one threshold, and sets of diagnoses made with it
contain the true one nine times in ten, on average over patients who are spread
over the hospitals as the calibration patients are. The patients are made up
(``hospitals/make.py``).

    python examples/own_model.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from fedcover import conformal

sys.path.insert(0, str(Path(__file__).parent / "hospitals"))
from make import DIAGNOSES, HOSPITALS, hospitals

ALPHA = 0.1
RESPLITS = 100


def main(patients: int = 3000, seed: int = 0) -> tuple[conformal.Threshold, float]:
    """Train, calibrate, and print what the sets are worth.

    Returns the threshold, and the mean coverage over re-splits of calibration and test.
    """
    nodes, _ = hospitals(patients, seed)
    x = nodes.drop("id", "label", "client").to_numpy()
    y = np.searchsorted(DIAGNOSES, nodes["label"].to_numpy())
    site = np.array([HOSPITALS.index(name) for name in nodes["client"]])

    # A third trains the model, wherever that happens; the rest calibrates or tests.
    rng = np.random.default_rng([seed, 0xF02])
    role = rng.permutation(np.arange(patients) % 3)
    train, calib, test = (role == part for part in range(3))
    model = RandomForestClassifier(min_samples_leaf=5, n_estimators=100, random_state=seed)
    model.fit(x[train], y[train])

    # From here on it is arrays, and each hospital's stay with it.
    scores = conformal.score("aps", model.predict_proba(x), u=rng.random(patients))
    true = conformal.true_scores(scores, y)
    by_hospital = [true[calib & (site == k)] for k in range(len(HOSPITALS))]

    # Four rounds of 256 counts a hospital: an order statistic of all scores, found exactly.
    threshold = conformal.calibrate(by_hospital, alpha=ALPHA)
    low, high = conformal.coverage_band(ALPHA, [len(own) for own in by_hospital])
    print(f"threshold {threshold.q_hat:.4f} from {threshold.n_calibration} patients")
    print(f"promised: between {low:.3f} and {high:.3f} of new patients, on average")

    sets = conformal.prediction_sets(scores[test], threshold.q_hat)
    covered, size = conformal.coverage(sets, y[test]), conformal.mean_set_size(sets)
    print(f"measured: {covered:.3f} of {int(test.sum())}, {size:.2f} diagnoses in a set")
    shares = conformal.by_group(sets, y[test], site[test])
    for name, share, labels in zip(HOSPITALS, shares.coverage, shares.size, strict=True):
        print(f"  {name:10} {share:.3f}, {labels:.2f} diagnoses")

    # One split scatters; a hundred others of the same patients show what is promised, the mean.
    pool = calib | test
    mask = rng.random((RESPLITS, int(pool.sum()))) < 0.5
    q_hats = conformal.quantile_over_resplits("exact", true[pool], site[pool], mask, [ALPHA])
    hits = true[pool] <= q_hats
    mean = float(np.mean([row[~own].mean() for row, own in zip(hits, mask, strict=True)]))
    _, sd = conformal.beta_binomial(ALPHA, threshold.n_calibration, int(test.sum()))
    print(f"over {RESPLITS} re-splits: {mean:.3f} on average; one alone is off by ± {sd:.3f}")
    return threshold, mean


if __name__ == "__main__":
    main()
