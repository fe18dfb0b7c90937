"""What parties tell of their columns so that all features get one scale: sums, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedcover import fixed_point
from fedcover.conformal.protocol import Message
from fedcover.graphs.scaling import column_sums
from fedcover.graphs.splits import Role

if TYPE_CHECKING:
    from fedcover.party.party import Party


def columns(party: Party, _part: str, _query: Message) -> Message:
    """Which columns are numbers, and in which of them a value is missing, as ones to be added."""
    data = party.data
    missing = np.zeros(len(data.numeric), dtype=np.int64)
    if data.missing is not None:
        missing[data.missing[1]] = 1
    return {"numeric": data.numeric.astype(np.int64), "missing": missing}


def statistics(party: Party, _part: str, query: Message) -> Message:
    """Count, sum and sum of squares of the asked columns over the party's training nodes."""
    data = party.data
    sums = column_sums(data.x, data.nodes(Role.TRAIN), query["columns"], data.missing)
    return {"count": sums[0].astype(np.int64), "sums": fixed_point.encode_wide(sums[1:])}


def groups(party: Party, _part: str, _query: Message) -> Message:
    """The names of the groups that have nodes here."""
    assert party.data.group is not None
    names = "\n".join(party.data.group_names[number] for number in np.unique(party.data.group))
    return {"names": np.frombuffer(names.encode(), dtype=np.uint8)}
