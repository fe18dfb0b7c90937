"""From trained models to thresholds: temperature, constants of scores, quantiles, sets.

Constants are chosen on validation nodes by sums over the parties; thresholds by counts of
calibration nodes, party by party, since a rule may weigh the parties.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcover import conformal
from fedcover.algorithm import checks
from fedcover.algorithm.requests import Ask, Census, Conversation, Parallel, Sum, Tell, once
from fedcover.config import Config
from fedcover.conformal.metrics import TALLIED
from fedcover.conformal.protocol import Message, Server, text, words
from fedcover.plans import cases_of

ROUNDS = 256  # more than any talk has


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
    terms: conformal.Terms = conformal.NO_TERMS  # of the rule ``exact``
    left_out: frozenset[int] = frozenset()  # whose scores do not count: they may be lies
    notes: list[str] = field(default_factory=list)
    thresholds: list[Thresholds] = field(default_factory=list)  # by case
    parties: frozenset[int] = frozenset()  # whom the guarantee is for
    tallies: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # by party: cases × TALLIED
    correct: dict[int, int] = field(default_factory=dict)  # nodes with the right top label


def calibrate(
    method: str,
    config: Config,
    classes: int,
    census: Census,
    groups: Sequence[str],
    names: Sequence[str],
) -> Conversation[Calibrated]:
    """Calibrate a method whose models the parties, of these names, have; they make their sets."""
    found = Calibrated(parties=census.parties)
    found.temperature = yield from temperature(f"{method}/temperature", config, classes)
    if any(conformal.base_score(name).tuned for name in config.scores):
        found.raps = yield from _raps(method, classes)
    for name in config.scores:
        if name in conformal.GRAPH_SCORES:
            found.diffusion[name] = yield from diffusion(method, name, classes)
    spread = (yield from _spread(method, config, census, found)) if config.robust else {}
    found.terms = promise_terms(config, census, census.parties, found.left_out)
    found.notes = _notes(config, census, found, names)
    yield from _thresholds(method, config, census, groups, found, spread)
    yield from _sets(method, config, classes, census, found)
    return found


def asked_shares(config: Config, census: Census, kept: Sequence[int]) -> list[float] | None:
    """How the nodes that the promise is for are spread over these parties, as they say.

    By default these are the nodes without a label, and where there are none the test nodes; None:
    nobody is asked about, and parties count by their calibration nodes.
    """
    if config.client_shares is not None:
        given = [config.client_shares[party] for party in kept]
        return given if any(given) else None
    for kind in ("unlabelled", "test") if config.asked_about is None else (config.asked_about,):
        counts: list[float] = [census.counts[party][kind] for party in kept]
        if any(counts):
            return counts
    return None


def promise_terms(
    config: Config, census: Census, there: frozenset[int], left_out: frozenset[int]
) -> conformal.Terms:
    """For whom the promise is among the parties that are there; no share is above the limit."""
    kept = sorted(there - left_out)
    said = asked_shares(config, census, kept)
    claimed = [census.counts[party]["calib"] for party in kept] if said is None else said
    limit = 1.0 if config.client_shares is not None else config.max_share  # those are no claims
    shares = conformal.capped(claimed, limit) if any(claimed) else claimed
    if not any(claimed) or (said is None and shares is claimed and len(kept) == len(there)):
        return conformal.Terms(None, config.confidence)
    by_party = dict(zip(kept, shares, strict=True))
    every = tuple(by_party.get(party, 0) for party in sorted(there))
    return conformal.Terms(every, config.confidence)


def _notes(config: Config, census: Census, found: Calibrated, names: Sequence[str]) -> list[str]:
    """Who was left out, and whose share was limited."""
    notes, kept = [], sorted(census.parties - found.left_out)
    if found.left_out:
        listed = ", ".join(names[party] for party in sorted(found.left_out))
        notes.append(
            f"robust {config.robust}: the scores of {listed} are the least like the others' and do "
            "not count; the level is promised for the nodes of the others."
        )
    if found.terms.shares is None or config.client_shares is not None:
        return notes
    said = asked_shares(config, census, kept)
    claimed = census.of("calib") if said is None else dict(zip(kept, said, strict=True))
    whole, total = sum(claimed[party] for party in kept), sum(found.terms.shares)
    counted = dict(zip(sorted(census.parties), found.terms.shares, strict=True))
    for party in kept:
        share, counts = claimed[party] / whole, counted[party] / total
        if share > counts * (1 + 1e-6):
            notes.append(
                f"{names[party]} claims {share:.2%} of the nodes asked about, above max_share: "
                f"with exact it counts as {counts:.2%}, and the promise is for these shares."
            )
    return notes


def _spread(
    method: str, config: Config, census: Census, found: Calibrated
) -> Conversation[dict[int, NDArray[np.int64]]]:
    """How each party's scores are spread, scores × bins; who is left out for it."""
    part, calib = f"{method}/spread", census.of("calib")
    shape = len(config.scores), conformal.SPREAD

    def check(party: int, reply: Message) -> str:
        counts = reply["counts"]
        if (counts < 0).any() or (counts > calib[party]).any():
            return "has a count that cannot be"
        wrong = (counts.sum(axis=1) != calib[party]).any()
        return f"counts scores otherwise than the {calib[party]} that it has" if wrong else ""

    def ask() -> Conversation[Message]:
        arrays = checks.Arrays({"counts": (np.int64, shape)}, check)
        replies = yield Ask(part, "spread", to=found.parties, check=arrays)
        parties = sorted(replies)
        counts = np.stack([replies[party]["counts"] for party in parties])
        return {"parties": np.array(parties), "counts": counts}

    told = yield from once(part, ask())
    parties = told["parties"].tolist()
    found.parties &= frozenset(parties)
    apart = conformal.outliers(told["counts"], config.robust)
    found.left_out = frozenset(parties[place] for place in apart)
    return dict(zip(parties, told["counts"], strict=True))


def temperature(part: str, config: Config, classes: int) -> Conversation[float]:
    """One temperature for all parties; ``none`` asks nobody and is 1."""
    if config.temperature == "none":
        return 1.0
    server, client, summed = conformal.TEMPERATURES[config.temperature]
    check = checks.Alike(client, (np.empty((0, classes), np.float32), np.empty(0, np.int64)))
    kind = Sum if summed else Ask
    return float((yield from agreed(part, "temperature", server(), check, "temperature", kind)))


def _raps(method: str, classes: int) -> Conversation[conformal.RapsConstants]:
    nothing = np.empty((0, classes)), np.empty(0, np.int64), np.empty(0)
    check = checks.Alike(conformal.raps_client, nothing)
    server = conformal.raps_server()
    nu, k_reg = yield from agreed(f"{method}/raps", "raps", server, check, "constants")
    return conformal.RapsConstants(float(nu), int(k_reg))


def diffusion(method: str, name: str, classes: int) -> Conversation[conformal.Diffusion]:
    """The weights of a graph score."""
    none, similar = np.empty((0, classes)), conformal.GRAPH_SCORES[name].similar
    scores = conformal.GraphScores(none.astype(np.float32), none, none if similar else None)
    check = checks.Alike(conformal.diffusion_client, (scores, np.empty(0, np.int64)))
    grid = conformal.SNAPS_GRID if similar else conformal.DAPS_GRID
    part, server = f"{method}/weights of {name}", conformal.diffusion_server(grid=grid)
    weights = yield from agreed(part, "diffusion", server, check, "weights")
    return conformal.Diffusion(*weights.tolist())


def agreed(
    part: str, verb: str, server: Server[Any], check: checks.Alike, name: str, kind: type[Ask] = Sum
) -> Conversation[NDArray[np.float64]]:
    """What a talk came to, with whoever is there in a round; parties are told it as ``name``."""
    found, _ = yield from _led(part, verb, lambda _there: server, check, kind)
    value = np.asarray(found, dtype=np.float64)
    yield Tell(part, {name: value})
    return value


def _led(
    part: str,
    verb: str,
    server: Callable[[frozenset[int]], Server[Any]],
    check: checks.Alike | checks.QuantileCheck,
    kind: type[Ask] = Ask,
    present: frozenset[int] | None = None,
) -> Conversation[tuple[Any, frozenset[int]]]:
    """What a conformal talk (:mod:`fedcover.conformal.protocol`) came to, and between whom.

    Where it matters who is ``present``, the parties are the same in all rounds: if one is lost on
    the way, the talk begins again without it.
    """

    def ask() -> Conversation[Message]:
        there, place = present, 0
        talk, replies = server(there or frozenset()), None
        while True:
            try:
                query = talk.send(replies)  # type: ignore[arg-type]  # None: it begins
            except StopIteration as stop:
                value = text(json.dumps(stop.value, default=_plain))
                return {"value": value, "parties": np.array(sorted(there or ()))}
            check.begin(query)
            found: Any = yield kind(part, verb, query, place, to=there, check=check)
            place += 1
            replies = [found] if kind is Sum else [found[k] for k in sorted(found)]
            if there is not None and there - found.keys():  # again, with places of its own
                there, place = frozenset(found), ROUNDS * (place // ROUNDS + 1)
                talk, replies = server(there), None

    found = yield from once(part, ask())
    return json.loads(words(found["value"])), frozenset(found["parties"].tolist())


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else asdict(value)


def _thresholds(
    method: str,
    config: Config,
    census: Census,
    groups: Sequence[str],
    found: Calibrated,
    spread: Mapping[int, NDArray[np.int64]],
) -> Conversation[None]:
    """Those of all cases side by side; whom the guarantee is for."""
    grouped, talks = config.calibrate != "pooled", {}
    for score, rule, alpha in cases_of(config):
        part = f"{method}/quantile {rule} {score} {alpha:g}"
        own = {party: counts[config.scores.index(score)] for party, counts in spread.items()}
        check = checks.QuantileCheck(rule, census.of("calib"), grouped=grouped, spread=own)

        def server(there: frozenset[int], rule: str = rule, alpha: float = alpha) -> Server[Any]:
            terms = conformal.NO_TERMS
            if rule == "exact":
                terms = promise_terms(config, census, there, found.left_out)
            if grouped:
                return conformal.group_server(alpha, len(groups), rule, terms)
            return conformal.server_of(rule, alpha, terms)

        asked = found.parties - found.left_out
        talks[part] = _led(part, "quantile", server, check, present=asked)
    results: dict[str, tuple[Any, frozenset[int]]] = yield Parallel(talks)
    for value, there in results.values():
        pooled, own_ones = value if grouped else (value, [])
        of_groups = tuple(conformal.GroupThreshold(**one) for one in own_ones)
        found.thresholds.append(Thresholds(conformal.Threshold(**pooled), of_groups))
        found.parties &= there | found.left_out


def _sets(
    method: str, config: Config, classes: int, census: Census, found: Calibrated
) -> Conversation[None]:
    """The parties make their sets and keep them; their counts come back."""
    part, counted = f"{method}/sets", census.judged
    labelled = counted if census.tested else census.of("calib")
    kind = "test nodes" if census.tested else "nodes without a label"
    q_hats = np.stack([one.q_hats for one in found.thresholds])
    expected = {"tally": (np.int64, (len(q_hats), len(TALLIED))), "correct": (np.int64, (1,))}

    def check(party: int, reply: Message) -> str:
        tally = reply["tally"]
        upper = np.array([1, census.tested, classes, 1, 1]) * counted[party]
        if (tally[:, 0] != counted[party]).any():
            return f"counts {tally[0, 0]} {kind}, but has {counted[party]}"
        right = reply["correct"][0]
        if (tally < 0).any() or (tally > upper).any() or not 0 <= right <= labelled[party]:
            return "has a count that cannot be"
        return ""

    arrays = checks.Arrays(expected, check)
    query: Message = {"q_hat": q_hats}
    own: dict[int, Message] = {}
    if config.calibrate == "client":  # each is told its own threshold alone
        query, own = {}, {party: {"q_hat": q_hats[:, [party]]} for party in found.parties}

    def ask() -> Conversation[Message]:
        replies = yield Ask(part, "sets", query, own=own, to=found.parties, check=arrays)
        parties = sorted(replies)
        counts = {name: np.stack([replies[k][name] for k in parties]) for name in expected}
        return {"parties": np.array(parties), **counts}

    told = yield from once(part, ask())
    parties = told["parties"].tolist()
    found.tallies = dict(zip(parties, told["tally"], strict=True))
    found.correct = dict(zip(parties, told["correct"][:, 0].tolist(), strict=True))
