"""For whom a level is promised."""

import numpy as np

from fedcover.conformal import GroupThreshold, Terms
from fedcover.predictor.calibration import (
    EVERYTHING,
    OF_CLASS,
    PROMISES,
    SHARED,
    WEIGHED,
    Calibration,
    Groups,
    promises,
)

YES = PROMISES["test"]


def test_a_group_that_is_too_small_is_told_so():
    kinds = np.array(["test", "test", "new", "unlabelled"], dtype=object)
    own = [GroupThreshold(0.5, 90, 1, 80, ""), GroupThreshold(0.7, 3, 1, 4, "", fell_back=True)]
    scores, client = np.zeros(3, np.float32), np.array([0, 0, 1])
    at = np.array([0, 1, 1, 0])

    def said(kind, member, node, group_of_node, client=client):
        groups = Groups(kind, ("a", "b"), np.array(member))
        calibration = Calibration.of(scores, client, 2, groups)
        return promises(kinds[node], at[node], group_of_node, calibration, own, "exact")

    every = np.arange(4)
    assert said("client", [0, 0, 1], every, at) == [
        YES,
        "no: its client has too few calibration nodes",
        "no: it is new; --recalibrate can promise for it",
        PROMISES["unlabelled"],
    ]
    assert said("class", [0, 0, 1], every[:1], None) == [
        f"{OF_CLASS}, but not for each class: too few calibration nodes of b"
    ]
    # The first client has calibration nodes of both groups, the second of b alone.
    assert said("group", [0, 1, 1], every[:2], np.array([0, 0])) == [
        YES,
        "no: its client has no calibration node of its group",
    ]
    alone = said("client", [0, 0, 0], every[1:2], np.array([1]), client=np.zeros(3, np.int64))
    assert alone == ["no: its client has no calibration node"]


def test_a_promise_says_what_it_is_worth():
    test = np.array(["test"] * 10, dtype=object)
    calibration = Calibration.of(np.zeros(9, np.float32), np.array([0] * 8 + [1]), 2)
    there, elsewhere = np.array([0] * 8 + [1] * 2), np.ones(10, dtype=int)
    found = [calibration.pooled(0.3, "exact")]
    # 8 : 2 against weights of 9 : 2, and against 8 : 1.
    assert set(promises(test, there, None, calibration, found, "theorem1")) == {YES}
    assert set(promises(test, there, None, calibration, found, "exact")) == {WEIGHED}
    assert set(promises(test, elsewhere, None, calibration, found, "exact")) == {WEIGHED}
    for shares, word in (((0.8, 0.2), YES), ((0.2, 0.8), SHARED)):
        said = promises(test, there, None, calibration, found, "exact", Terms(shares))
        assert set(said) == {word}
    full = [calibration.pooled(0.01, "exact")]
    assert set(promises(test, there, None, calibration, full, "exact")) == {EVERYTHING}


def test_a_group_whose_test_nodes_are_elsewhere_is_told_so():
    rng = np.random.default_rng(0)
    client, member = rng.integers(0, 2, 400), rng.integers(0, 3, 400)
    there = np.where(member == 2, 1 - client, client)  # the last group has changed places
    there[(member == 2) & (rng.random(400) < 0.8)] = 0
    test = np.array(["test"] * 400, dtype=object)
    groups = Groups("group", ("a", "b", "c"), member)
    calibration = Calibration.of(np.zeros(400, np.float32), client, 2, groups)
    own = [GroupThreshold(0.5, 130, 2, 120, "")] * 3
    said = np.array(promises(test, there, member, calibration, own, "exact"))
    assert [set(said[member == g]) for g in range(3)] == [{YES}, {YES}, {WEIGHED}]


def test_classes_are_weighed_as_all_nodes_are():
    test, client = np.array(["test"] * 10, dtype=object), np.array([0] * 9 + [1])
    groups = Groups("class", ("a", "b"), np.arange(10) % 2)
    calibration = Calibration.of(np.zeros(10, np.float32), client, 2, groups)
    own = [GroupThreshold(0.5, 90, 1, 80, ""), GroupThreshold(0.7, 3, 1, 4, "", fell_back=True)]
    said = promises(test, 1 - client, None, calibration, own, "exact")
    assert set(said) == {f"{OF_CLASS}, but not for each class: too few calibration nodes of b"}


def test_a_set_of_all_labels_keeps_any_level_in_a_small_group_too():
    test, client = np.array(["test", "test"], dtype=object), np.array([0, 0])
    groups = Groups("group", ("a", "b"), np.array([0, 1]))
    calibration = Calibration.of(np.zeros(2, np.float32), client, 1, groups)
    own = [GroupThreshold(np.inf, 1, 1, 4, "", fell_back=True), GroupThreshold(0.7, 9, 1, 4, "")]
    said = promises(test, client, np.array([0, 1]), calibration, own, "exact")
    assert said == [EVERYTHING, YES]
