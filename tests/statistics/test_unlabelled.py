"""Nodes without a label, as hospitals have them: the level holds for them, not for the labelled.

Two hospitals lack 10 % and 85 % of their labels, at random within each, and the second is harder.
Calibration nodes are nearly all at the first, nodes without a label at the second. The graph and
its true labels stay; which labels are missing is drawn anew each time.
"""

import numpy as np
import polars as pl
import pytest

from fedcover import Config, run

ALPHA, REMOVALS = 0.1, 40
CONFIG = Config(
    partition="given",
    methods=("fed",),
    quantiles=("exact", "theorem1"),
    alphas=(ALPHA,),
    seeds=1,
    rounds=20,
    hidden=8,
    test=0,
)


@pytest.fixture(scope="module")
def coverage(hospitals) -> dict[str, np.ndarray]:
    """Of the nodes without a label, by rule: one value a removal."""
    found: dict[str, list[float]] = {rule: [] for rule in CONFIG.quantiles}
    for removal in range(REMOVALS):
        graph, y = hospitals(removal)
        true = pl.Series(graph.label_names).gather(y)
        sets = run(graph, CONFIG).sets
        assert sets["label"].null_count() == len(sets)
        sets = sets.with_columns(true=true.gather(sets["node"].cast(pl.Int64)))
        for rule, values in found.items():
            held = sets.filter(quantile=rule).select(pl.col("set").list.contains(pl.col("true")))
            values.append(held.to_series().mean())
    return {rule: np.array(values) for rule, values in found.items()}


def test_nodes_without_a_label_are_covered_at_the_level(coverage):
    error = coverage["exact"].std(ddof=1) / np.sqrt(REMOVALS)
    assert error < 0.01
    assert coverage["exact"].mean() >= 1 - ALPHA - 3 * error


def test_a_rule_that_does_not_know_who_is_asked_about_misses_it(coverage):
    """So that the graph can tell: the second hospital is harder."""
    assert coverage["theorem1"].mean() < 1 - ALPHA - 0.1
