"""Answers that parties of one process work out as one program; each gets what it would alone.

``TOGETHER`` has an answer for each party, ``SUMS`` the sum of one repetition's answers, where that
is quicker to find than its terms. A party alone is the case of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fedcover.conformal.protocol import Message
from fedcover.party import generated
from fedcover.party.neighgen import answers as neighgen
from fedcover.training.plan import Progress

if TYPE_CHECKING:
    from fedcover.party.party import Party


def _prototypes(
    parties: Sequence[Party], _round: int, _queries: Sequence[Message], report: Progress
) -> list[Message]:
    return generated.prototypes(parties, lambda done: report("VAEs gen", done, len(parties)))


TOGETHER: dict[
    str, Callable[[Sequence[Party], int, Sequence[Message], Progress], list[Message]]
] = {
    "prototypes": _prototypes,
    "generators": neighgen.generators,
    "mend": neighgen.mend,
}
SUMS: dict[str, Callable[[Sequence[Party], int, Message], Message]] = {
    "gradients": neighgen.gradients
}
