"""For whom a level is promised."""

import numpy as np

from fedcover.conformal import GroupThreshold
from fedcover.predictor.calibration import Calibration, Groups
from fedcover.predictor.promise import EVERYTHING, WEIGHED, promises


def test_a_group_that_is_too_small_is_told_so():
    kinds = np.array(["test", "test", "new", "unlabelled"], dtype=object)
    own = [GroupThreshold(0.5, 90, 1, 80, ""), GroupThreshold(0.7, 3, 1, 4, "", fell_back=True)]
    scores, client = np.zeros(3, np.float32), np.array([0, 0, 1])
    at = np.array([0, 1, 1, 0])

    def said(kind, member, node, group_of_node):
        groups = Groups(kind, ("a", "b"), np.array(member))
        calibration = Calibration.of(scores, client, 2, groups)
        return promises(kinds[node], at[node], group_of_node, calibration, own, "exact")

    every = np.arange(4)
    assert said("client", [0, 0, 1], every, at) == [
        "yes",
        "no: its client has too few calibration nodes",
        "no: it is new, which needs new calibration nodes",
        "if labels are missing at random",
    ]
    assert said("class", [0, 0, 1], every[:1], None) == [
        "yes, but not for each class: too few calibration nodes of b"
    ]
    # The first client has calibration nodes of both groups, the second of b alone.
    assert said("group", [0, 1, 1], every[:2], np.array([0, 0])) == [
        "yes",
        "no: its client has no calibration node of its group",
    ]


def test_a_promise_says_what_it_is_worth():
    test = np.array(["test"] * 10, dtype=object)
    calibration = Calibration.of(np.zeros(9, np.float32), np.array([0] * 8 + [1]), 2)
    there, elsewhere = np.array([0] * 8 + [1] * 2), np.ones(10, dtype=int)
    found = [calibration.pooled(0.3, "exact")]
    assert set(promises(test, there, None, calibration, found, "exact")) == {"yes"}
    assert set(promises(test, elsewhere, None, calibration, found, "exact")) == {WEIGHED}
    assert set(promises(test, elsewhere, None, calibration, found, "mixture")) == {"yes"}
    full = [calibration.pooled(0.01, "exact")]
    assert set(promises(test, there, None, calibration, full, "exact")) == {EVERYTHING}
