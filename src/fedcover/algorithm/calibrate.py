"""From trained models to thresholds: temperature, constants of scores, quantiles, sets.

Constants are chosen on validation nodes by sums over the parties; thresholds by counts of
calibration nodes, party by party, since a rule may weigh the parties.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.algorithm import checks
from fedcover.algorithm.quantile_check import QuantileCheck
from fedcover.algorithm.requests import (
    Ask,
    Conversation,
    Parallel,
    Replies,
    Tell,
    once,
)
from fedcover.algorithm.talk import added_up, agreed
from fedcover.config import Config
from fedcover.conformal.protocol import Message, Server
from fedcover.party.calibration import TALLIED

Case = tuple[str, str, float]
"""A score, a quantile rule and a level."""


@dataclass(frozen=True)
class Census:
    """How many nodes every party has, by its number: of each role, and in all."""

    counts: Mapping[int, Mapping[str, int]]

    @property
    def parties(self) -> frozenset[int]:
        """The numbers of all parties."""
        return frozenset(self.counts)

    def of(self, kind: str) -> dict[int, int]:
        """One count by party."""
        return {party: counts[kind] for party, counts in self.counts.items()}


@dataclass(frozen=True)
class Thresholds:
    """What one case's calibration came to: the pooled threshold, and those of groups if they have
    their own."""

    pooled: conformal.Threshold
    groups: tuple[conformal.GroupThreshold, ...] = ()

    @property
    def q_hats(self) -> NDArray[np.float32]:
        """What sets are made with: one number, or one for each group."""
        found = self.groups or (self.pooled,)
        return np.array([one.q_hat for one in found], dtype=np.float32)


@dataclass
class Calibrated:
    """One method's calibration, and what every party's sets came to."""

    temperature: float = 1.0
    raps: conformal.RapsConstants | None = None
    diffusion: dict[str, conformal.Diffusion] = field(default_factory=dict)  # by graph score
    shares: tuple[float, ...] | None = None  # the parties' shares of test nodes, for ``mixture``
    thresholds: list[Thresholds] = field(default_factory=list)  # by case
    parties: frozenset[int] = frozenset()  # whom the guarantee is for
    tallies: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # by party: cases × TALLIED
    correct: dict[int, int] = field(default_factory=dict)  # test nodes with the right top label


def cases_of(config: Config) -> list[Case]:
    """Every score, quantile rule and level whose sets are asked for, in a fixed order."""
    return [(s, q, a) for s in config.scores for q in config.quantiles for a in config.alphas]


def calibrate(
    method: str, config: Config, classes: int, census: Census, groups: Sequence[str]
) -> Conversation[Calibrated]:
    """Calibrate a method whose models the parties have; they make their sets."""
    found = Calibrated(parties=census.parties)
    found.temperature = yield from temperature(f"{method}/temperature", config, classes)
    if any(conformal.base_score(name).tuned for name in config.scores):
        nothing = np.empty((0, classes)), np.empty(0, np.int64), np.empty(0)
        constants = yield from added_up(
            f"{method}/raps",
            "raps",
            conformal.raps_server(),
            lambda value: np.array(value, dtype=np.float64),
            (conformal.raps_client, nothing),
        )
        yield Tell(f"{method}/raps", {"constants": constants})
        found.raps = conformal.RapsConstants(float(constants[0]), int(constants[1]))
    for name in config.scores:
        if name in conformal.GRAPH_SCORES:
            found.diffusion[name] = yield from _diffusion(method, name, classes)
    found.shares = _shares(config, census)
    yield from _thresholds(method, config, census, groups, found)
    yield from _sets(method, config, classes, census, found)
    return found


def temperature(part: str, config: Config, classes: int) -> Conversation[float]:
    """One temperature for all parties; ``none`` asks nobody and is 1."""
    if config.temperature == "none":
        return 1.0
    way = conformal.TEMPERATURES[config.temperature]
    alike = (way.client, _no_nodes(classes))
    if way.summed:
        value = yield from added_up(part, "temperature", way.server(), _number, alike)
    else:
        check = checks.Alike(*alike)

        def ask() -> Conversation[dict[str, NDArray[Any]]]:
            talk = way.server()
            query = next(talk)
            check.begin(query)
            replies: Replies = yield Ask(part, "temperature", query, check=check)
            try:
                talk.send([replies[party] for party in sorted(replies)])
            except StopIteration as stop:
                return {"value": _number(stop.value)}
            raise AssertionError("averaging takes one round")

        value = (yield from once(part, ask()))["value"]
    yield Tell(part, {"temperature": value[0]})
    return float(value[0])


def _number(value: float) -> NDArray[np.float64]:
    return np.array([value], dtype=np.float64)


def _no_nodes(classes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Outputs and labels of a party without validation nodes."""
    return np.empty((0, classes), np.float32), np.empty(0, np.int64)


def _diffusion(method: str, name: str, classes: int) -> Conversation[conformal.Diffusion]:
    """The weights of a graph score."""
    similar = conformal.GRAPH_SCORES[name].similar
    none = np.empty((0, classes))
    nothing = conformal.GraphScores(none.astype(np.float32), none, none if similar else None)
    part = f"{method}/weights of {name}"
    weights = yield from added_up(
        part,
        "diffusion",
        conformal.diffusion_server(grid=conformal.SNAPS_GRID if similar else conformal.DAPS_GRID),
        lambda value: np.array(value, dtype=np.float64),
        (conformal.diffusion_client, (nothing, np.empty(0, np.int64))),
    )
    yield Tell(part, {"weights": weights})
    return conformal.Diffusion(*weights.tolist())


def _shares(config: Config, census: Census) -> tuple[float, ...] | None:
    """What the rule ``mixture`` promises for: the settings' shares, or those of the test nodes that
    the parties counted when the job began."""
    if "mixture" not in config.quantiles:
        return None
    if config.mixture is not None:
        return tuple(config.mixture)
    return tuple(census.of("test")[party] for party in sorted(census.parties))


def _thresholds(
    method: str, config: Config, census: Census, groups: Sequence[str], found: Calibrated
) -> Conversation[None]:
    talks = {}
    for score, rule, alpha in cases_of(config):
        part = f"{method}/quantile {rule} {score} {alpha:g}"
        check = QuantileCheck(rule, census.of("calib"), grouped=config.calibrate != "pooled")
        shares = found.shares if rule == "mixture" else None
        talks[part] = agreed(
            part,
            "quantile",
            _server(config, rule, alpha, shares, len(groups)),
            _spelt,
            found.parties,
            check=check,
            begin=check.begin,
        )
    results = yield Parallel(talks)
    for value, there in results.values():
        found.thresholds.append(_read(value))
        found.parties &= there


def _server(
    config: Config, rule: str, alpha: float, shares: Sequence[float] | None, groups: int
) -> Any:
    if config.calibrate != "pooled":
        return lambda _there: conformal.group_server(alpha, groups, rule)

    def pooled(
        there: frozenset[int],
    ) -> Server[tuple[conformal.Threshold, list[conformal.GroupThreshold]]]:
        own = None if shares is None else [shares[party] for party in sorted(there)]
        threshold = yield from conformal.server_of(rule, alpha, own)
        return threshold, []

    return pooled


def _spelt(value: tuple[conformal.Threshold, list[conformal.GroupThreshold]]) -> NDArray[np.uint8]:
    pooled, groups = value
    text = json.dumps([asdict(pooled), [asdict(own) for own in groups]])
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _read(array: NDArray[np.uint8]) -> Thresholds:
    pooled, groups = json.loads(array.tobytes().decode())
    return Thresholds(
        conformal.Threshold(**pooled), tuple(conformal.GroupThreshold(**own) for own in groups)
    )


def _sets(
    method: str, config: Config, classes: int, census: Census, found: Calibrated
) -> Conversation[None]:
    """The parties make their sets and keep them; their counts come back."""
    part, tests = f"{method}/sets", census.of("test")
    q_hats = np.stack([one.q_hats for one in found.thresholds])
    shape = (len(q_hats), len(TALLIED))
    arrays = checks.Arrays({"tally": (np.int64, shape), "correct": (np.int64, (1,))})

    def check(party: int, reply: Message) -> str:
        tally = reply["tally"]
        upper = np.array([1, 1, classes, 1, 1]) * tests[party]
        if (tally[:, 0] != tests[party]).any():
            return f"counts {tally[0, 0]} test nodes, but has {tests[party]}"
        right = reply["correct"][0]
        if (tally < 0).any() or (tally > upper).any() or not 0 <= right <= upper[0]:
            return "has a count that cannot be"
        return ""

    query: Message = {"q_hat": q_hats}
    own: dict[int, Message] = {}
    if config.calibrate == "client":  # each is told its own threshold alone
        query = {}
        own = {party: {"q_hat": q_hats[:, [party]]} for party in found.parties}

    def ask() -> Conversation[dict[str, NDArray[Any]]]:
        replies: Replies = yield Ask(
            part,
            "sets",
            query,
            own=own,
            to=found.parties,
            check=checks.both(arrays, check),
            most=arrays.nbytes,
        )
        parties = sorted(replies)
        return {
            "parties": np.array(parties),
            "tally": np.stack([replies[party]["tally"] for party in parties]),
            "correct": np.array([int(replies[party]["correct"][0]) for party in parties]),
        }

    told = yield from once(part, ask())
    parties = told["parties"].tolist()
    found.tallies = dict(zip(parties, told["tally"], strict=True))
    found.correct = dict(zip(parties, told["correct"].tolist(), strict=True))
