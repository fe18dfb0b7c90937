"""For which nodes a set keeps its level, and in which words the others are told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.predictor.calibration import Groups

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


def promises(
    kinds: NDArray[np.object_],
    rule: str,
    thresholds: Sequence[conformal.Threshold],
    groups: Groups | None = None,
    member: NDArray[np.int64] | None = None,
) -> list[str]:
    """Whether each node's set keeps its level: by what the node is (``PROMISES``), and for those
    that a promise is possible for, by the rule and by who is too small for a threshold."""
    said = np.array([PROMISES[kind] for kind in kinds], dtype=object)
    open_ = np.isin(kinds.astype(str), ("test", "unlabelled"))
    small = np.array([isinstance(t, conformal.GroupThreshold) and t.fell_back for t in thresholds])
    if not conformal.RULES[rule].guarantee:
        said[open_] = f"no: the rule {rule} has no guarantee"
    elif groups is not None and member is not None:
        said[open_ & small[member]] = f"no: its {groups.kind} has too few calibration nodes"
    elif groups is not None and small.any():
        names = ", ".join(name for name, few in zip(groups.names, small, strict=True) if few)
        said[open_] += f", but not for each class: too few calibration nodes of {names}"
    return [str(one) for one in said]
