"""What a party can be asked, by verb.

``TOGETHER`` has an answer for each of several parties of one process, which work it out as one
program; each gets what it would alone. ``SUMS`` has the sum of one repetition's answers, where that
is quicker to find than its terms. For both, a party alone is the case of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedcover import fixed_point
from fedcover.conformal.protocol import Message, text
from fedcover.graphs.scaling import column_sums
from fedcover.graphs.splits import Role
from fedcover.party import calibration, generated, local_training, neighbours, neighgen
from fedcover.training.plan import Progress

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
    return {"names": text(names)}


TRAINING: dict[str, Callable[[Party, str, int, Message], Message]] = {
    "train": local_training.train,
    "train alone": local_training.train_alone,
    "start alone": local_training.train_alone,
}
TOGETHER: dict[
    str, Callable[[Sequence[Party], int, Sequence[Message], Progress], list[Message]]
] = {
    "prototypes": generated.prototypes,
    "generators": neighgen.generators,
    "mend": neighgen.mend,
}
SUMS: dict[str, Callable[[Sequence[Party], int, Sequence[Message]], Message]] = {
    "gradients": neighgen.gradients,
    "far ends": neighbours.far_ends,
}
ANSWERS: dict[str, Callable[[Party, str, Message], Message]] = {
    "columns": columns,
    "statistics": statistics,
    "groups": groups,
    "key": neighbours.key,
    "request": neighbours.request,
    "reply": neighbours.reply,
    "match": neighbours.match,
    "places": neighbours.places,
    "receive": neighbours.receive,
    "temperature": calibration.temperature,
    "mixture": calibration.mixture_losses,
    "raps": calibration.raps,
    "diffusion": calibration.diffusion,
    "quantile": calibration.quantile,
    "spread": calibration.spread,
    "sets": calibration.sets,
}
