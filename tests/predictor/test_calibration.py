"""What a predictor remembers of its calibration."""

import numpy as np
import pytest

from fedcover import UsageError, conformal
from fedcover.predictor.calibration import Calibration, Groups

SCORES, CLIENT = np.arange(20, dtype=np.float32), np.arange(20) % 2
HALVES = Groups("group", ("low", "high"), np.arange(20) // 10)


@pytest.mark.parametrize(("groups", "name"), [(None, "calibrate"), (HALVES, "group_thresholds")])
def test_a_threshold_is_looked_for_once(monkeypatch, groups, name):
    """``fedcover predict`` needs it for the sets and for the line above them."""
    looked = []
    find = getattr(conformal, name)

    def counted(scores, *rest, **further):
        looked.append(further)
        return find(scores, *rest, **further)

    monkeypatch.setattr(conformal, name, counted)
    calibration = Calibration.of(SCORES, CLIENT, 2, groups)
    first = calibration.thresholds(0.2, "exact")
    assert calibration.thresholds(0.2, "exact") == first
    assert len(looked) == 1
    others = [
        calibration.thresholds(0.5, "exact"),
        calibration.thresholds(0.2, "theorem1"),
        Calibration.of(SCORES + 1, CLIENT, 2, groups).thresholds(0.2, "exact"),
    ]
    assert len(looked) == 4
    assert all(other != first for other in others)


def test_shares_are_told_apart():
    calibration = Calibration.of(SCORES, CLIENT, 2)
    q_hats = [
        calibration.thresholds(0.5, "exact", conformal.Terms(shares))[0].q_hat
        for shares in ((1, 0), (0, 1))
    ]
    # All test nodes at the first client or at the second: the 6th of 0, 2, … or of 1, 3, ….
    assert q_hats == [10.0, 11.0]
    assert calibration.thresholds(0.5, "exact", conformal.Terms((2.0, 0.0)))[0].q_hat == 10.0


def test_what_is_refused_is_not_remembered():
    calibration = Calibration.of(SCORES, CLIENT, 2, HALVES)
    for _ in range(2):
        with pytest.raises(UsageError, match="alpha is 1"):
            calibration.thresholds(1.0, "exact")
