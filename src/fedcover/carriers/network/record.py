"""What happened on the way of a job: who answered, what was refused, where the time went."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from fedcover.carriers.network.messages import Reply


@dataclass(frozen=True)
class Refusal:
    """A reply that was not used; ``why`` goes on after "the reply of the site"."""

    phase: str
    round: int
    site: str
    why: str

    def __str__(self) -> str:
        return f"{self.phase}, round {self.round}: the reply of {self.site} {self.why}."


@dataclass
class Record:
    """For the run's notes."""

    answered: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)  # by phase and round
    refused: list[Refusal] = field(default_factory=list)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)  # by phase and cause

    def spend(self, phase: str, whole: float, transfer: float, slowest: Reply) -> None:
        """Add a round's seconds: what its slowest site did, what travelling took, and the rest."""
        causes = {
            "start-up": slowest.preparing,
            "training": slowest.seconds - slowest.preparing,
            "transfer": transfer,
        }
        causes["waiting"] = max(whole - sum(causes.values()), 0.0)
        sums = self.seconds.setdefault(phase, {})
        for cause, seconds in causes.items():
            sums[cause] = sums.get(cause, 0.0) + seconds

    def to_json(self) -> str:
        """For a checkpoint."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Record:
        """From what :meth:`to_json` made."""
        content = json.loads(text)
        return cls(
            {p: [tuple(sites) for sites in rounds] for p, rounds in content["answered"].items()},
            [Refusal(**one) for one in content["refused"]],
            content["seconds"],
        )


def sentences(refusals: Sequence[Refusal]) -> list[str]:
    """One for each site, phase and reason; what was said again and again is said once."""
    alike: dict[tuple[str, str, str], list[Refusal]] = {}
    for one in refusals:
        alike.setdefault((one.phase, one.site, one.why), []).append(one)
    found = []
    for (phase, site, why), several in alike.items():
        if len(several) == 1:
            found.append(str(several[0]))
            continue
        rounds = sorted(one.round for one in several)
        found.append(
            f"{phase}, {len(several)} times in rounds {rounds[0]} to {rounds[-1]}: the reply of "
            f"{site} {why}."
        )
    return found
