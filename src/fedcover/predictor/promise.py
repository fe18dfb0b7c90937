"""For which nodes a set keeps its level, and in which words the others are told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.graphs.inspection import TEST_SLACK
from fedcover.predictor.calibration import Calibration

PROMISES = {
    "test": "yes",
    "unlabelled": "if labels are missing at random",
    "changed": "no: it or its neighbourhood has changed since calibration",
    "new": "no: it is new, which needs new calibration nodes",
    "train": "no: the model was trained on it",
    "valid": "no: the model was chosen with it",
    "calib": "no: the threshold was chosen with it",
}
"""Whether a node's set keeps its level, by what the node is."""


WEIGHED = "yes, where clients count by their calibration nodes"
EVERYTHING = "yes: every label, for less there are too few calibration nodes"


def promises(
    kinds: NDArray[np.object_],
    client: NDArray[np.int64],
    member: NDArray[np.int64] | None,
    calibration: Calibration,
    thresholds: Sequence[conformal.Threshold],
    rule: str,
) -> list[str]:
    """Whether each node's set keeps its level: by what the node is (``PROMISES``), and for those
    that a promise is possible for, by the rule and by who has too few calibration nodes.

    ``member`` says which threshold each node takes; None: it is not the node that decides.
    """
    said = np.array([PROMISES[kind] for kind in kinds], dtype=object)
    tested = kinds == "test"
    possible = tested | (kinds == "unlabelled")
    groups = calibration.groups
    small = np.array([isinstance(t, conformal.GroupThreshold) and t.fell_back for t in thresholds])
    if not conformal.RULES[rule].guarantee:
        said[possible] = f"no: the rule {rule} has no guarantee"
    elif groups is not None and member is not None:
        said[possible & small[member]] = f"no: its {groups.kind} has too few calibration nodes"
        pair = calibration.client * len(groups.names) + groups.member
        alone = possible & ~np.isin(client * len(groups.names) + member, pair)
        said[alone] = f"no: its client has no calibration node of its {groups.kind}"
    elif groups is not None and small.any():
        names = ", ".join(name for name, few in zip(groups.names, small, strict=True) if few)
        said[possible] += f", but not for each class: too few calibration nodes of {names}"
    elif groups is None and np.isinf(thresholds[0].q_hat):
        said[tested] = EVERYTHING
    elif groups is None and rule == "exact" and _elsewhere(client[tested], calibration):
        said[tested] = WEIGHED
    return [str(one) for one in said]


def _elsewhere(client: NDArray[np.int64], calibration: Calibration) -> bool:
    """Whether test nodes are spread over the clients otherwise than Theorem 1 draws them."""
    clients = calibration.clients
    weights = np.bincount(calibration.client, minlength=clients) + 1
    test = np.bincount(client, minlength=clients)
    distance = np.abs(test / max(test.sum(), 1) - weights / weights.sum()).sum() / 2
    return bool(test.any() and distance > TEST_SLACK)
