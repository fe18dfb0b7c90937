"""Answers that many parties of one process work out as one program; each gets what it would alone.

``TOGETHER`` has the answers of all parties; ``SUMS`` those whose sum is quicker to find than its
terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedcover.conformal.protocol import Message
from fedcover.party import generated
from fedcover.party.party import Party

Progress = Callable[[str, int, int], None]


def _prototypes(
    parties: Sequence[Party], _request: Any, _queries: Sequence[Message], report: Progress
) -> list[Message]:
    return generated.prototypes(parties, lambda done: report("VAEs gen", done, len(parties)))


TOGETHER: dict[str, Callable[..., list[Message]]] = {"prototypes": _prototypes}
SUMS: dict[str, Callable[..., Any]] = {}
