"""+neighbours as a whole job: what leaves a party, what the coordinator sees, who gets what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from fedcover import sealing
from fedcover.algorithm.neighbours import Sealed
from fedcover.algorithm.session import Outcome, Session
from fedcover.carriers.loopback import Loopback
from fedcover.carriers.network.coordinator import Coordinator
from fedcover.carriers.network.member import InProcess
from fedcover.conformal import softmax
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError
from fedcover.graphs.schema import read_schema
from fedcover.graphs.sites import SCHEMA_FILE
from fedcover.party import neighbours
from fedcover.party.party import Party
from fedcover.plans import SUMMARISER, SUMS
from fedcover.training.program import hidden_layer

from ..carriers.network.conftest import make_job, members  # noqa: TID252
from ..party.linked import (  # noqa: TID252
    METHOD,
    Hook,
    Tapped,
    exchanged,
    graph_of,
    parties_of,
    random_graph,
    received,
    rows_of,
)

NUMBERED = np.stack([np.arange(12.0), np.ones(12)], axis=1)


def job(parties: Sequence[Party], **hooks: Hook) -> tuple[Tapped, Outcome]:
    """A whole job with this method: exchange, training, calibration, sets."""
    carrier, one = Tapped(parties, **hooks), parties[0]
    names = [party.data.name for party in parties]
    session = Session(one.config, one.classes, one.data.x.shape[1], carrier.census, names)
    carrier.carry(session.prepare())
    return carrier, carrier.carry(session.method(METHOD))


# Nothing of one node leaves its party.


def spellings(row: np.ndarray) -> Iterator[bytes]:
    """A row of numbers in the types and fixed points that a message could have."""
    for kind in (np.float32, np.float64, np.float16):
        yield row.astype(kind).tobytes()
    if (row == row.round()).all():
        for kind in (np.uint8, np.uint16, np.uint32, np.int64):
            yield row.astype(np.int64).astype(kind).tobytes()
    for bits in (24, 32):
        yield np.rint(row * 2.0**bits).astype(np.int64).tobytes()


def secrets_of(party: Party, summaries: np.ndarray | None) -> Iterator[bytes]:
    """What must not leave this party."""
    x = party.data.x
    for row in np.asarray(x.toarray() if sp.issparse(x) else x, dtype=np.float64):
        yield from spellings(row)
    for row in () if summaries is None else summaries.astype(np.float64):
        yield from spellings(row)
    for key in party.data.links.key.tolist():
        yield str(key).encode()


def linked_graph(real: bool, edges: int = 200) -> Any:
    """Nodes have ids of their own, and links are spelt by them, as parties' tables have it."""
    graph = random_graph(3, nodes=48, edges=edges, features=24, real=real)
    graph.linked = True
    return graph


@pytest.mark.parametrize("values", ["features", "encoding", "labels"])
@pytest.mark.parametrize("real", [True, False], ids=["real", "binary"])
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_nothing_of_a_node_or_a_link_leaves_its_party(
    values: str, real: bool, shared: bool
) -> None:
    parties = parties_of(linked_graph(real, 60 if shared else 200), values=values, shared=shared)
    carrier, outcome = job(parties)
    most = [np.bincount(row[row >= 0]).max() for row in map(neighbours.rows_of, parties)]
    assert (max(most) > 1) == shared
    assert sum(outcome.chosen["received"]) > 10
    made = dict.fromkeys(range(3), None)
    if values == "labels":
        made = {party.number: softmax(party.logits(SUMMARISER)) for party in parties}
    if values == "encoding":
        made = {
            party.number: hidden_layer(
                party.graph, party.weights[SUMMARISER], party.plan(SUMMARISER)
            )
            for party in parties
        }
    keys = [str(key) for party in parties for key in party.data.links.key.tolist()]
    assert all("node-" in key for key in keys)
    verbs, looked_at = set(), 0
    for party in parties:
        hidden = {text for text in secrets_of(party, made[party.number]) if any(text)}
        assert min(map(len, hidden)) >= 6
        for verb, number, message in carrier.up:
            if number != party.number:
                continue
            verbs.add(verb)
            for array in message.values():
                raw = array.tobytes()
                assert b"node-" not in raw
                looked_at += len(raw)
                assert not any(text in raw for text in hidden), verb
    assert looked_at > 40_000
    assert {"key", "request", "reply", "match", "places", "far ends", "train"} <= verbs


def test_the_same_search_finds_what_an_open_exchange_shows() -> None:
    """Without masks a sum over one far end is that far end, and letters are read by everyone."""
    parties = parties_of(linked_graph(True), matching="open")
    carrier = exchanged(parties)
    found = set()
    for party in parties:
        hidden = {text for text in secrets_of(party, None) if any(text)}
        for verb, number, message in carrier.up:
            raw = b"".join(array.tobytes() for array in message.values())
            if number == party.number and any(text in raw for text in hidden):
                found.add(verb)
    assert found == {"far ends"}


# What the coordinator adds up.


def p_value(words: np.ndarray) -> float:
    counts = np.bincount(np.ascontiguousarray(words).view(np.uint8).ravel(), minlength=256)
    assert counts.sum() > 4_000
    return float(stats.chisquare(counts).pvalue)


def by_owner(carrier: Tapped) -> dict[int, dict[int, Message]]:
    """The masked terms, by owner and by whose they are."""
    found: dict[int, dict[int, Message]] = {}
    owners = [(int(query["owner"]), n) for verb, n, query in carrier.down if verb == "far ends"]
    terms = [(n, reply) for verb, n, reply in carrier.up if verb == "far ends"]
    for (owner, asked), (party, reply) in zip(owners, terms, strict=True):
        assert asked == party
        found.setdefault(owner, {})[party] = reply
    return found


@pytest.mark.parametrize("real", [True, False], ids=["real", "binary"])
def test_masked_terms_and_sums_of_all_but_one_look_like_noise(real: bool) -> None:
    parties = parties_of(random_graph(nodes=100, edges=500, features=120, real=real))
    masked = by_owner(exchanged(parties))
    assert {owner: set(terms) for owner, terms in masked.items()} == {
        owner: set(range(4)) - {owner} for owner in range(4)
    }
    for terms in masked.values():
        sums = [term["sums"] for term in terms.values()]
        for own in sums:
            assert p_value(own) > 1e-4
            assert p_value(sum(sums) - own) > 1e-4
        assert p_value(sums[0] - sums[1]) > 1e-4
        # Even of all of them: what the owner alone can take off is still there.
        assert p_value(sum(sums)) > 1e-4
    # Numbers of far ends are for the coordinator, but only of all parties together.
    for name, width in (("sums", 1), ("numbers", 1)):
        words = [term[name].ravel() for terms in masked.values() for term in terms.values()]
        spread = np.concatenate(words).view(np.uint8)
        assert stats.chisquare(np.bincount(spread, minlength=256)).pvalue > 1e-4, width
    shown = parties_of(random_graph(nodes=100, edges=500, features=120, real=real), matching="open")
    for terms in by_owner(exchanged(shown)).values():
        assert all(p_value(term["sums"]) < 1e-100 for term in terms.values())


def test_no_two_masks_are_the_same() -> None:
    """Two terms under one mask would show their difference."""
    graph = graph_of(
        np.zeros((40, 50)), np.arange(40) % 4, (random_graph().edge_index.T % 40).tolist()
    )
    masked = by_owner(exchanged(parties_of(graph)))  # of zeros: the masks alone
    drawn = [term["sums"].ravel()[:64] for terms in masked.values() for term in terms.values()]
    for k, one in enumerate(drawn):
        for other in drawn[:k]:
            assert np.mean(one == other) < 0.1
            assert np.mean(one == -other) < 0.1


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_every_mask_hides_one_message_and_noise_is_no_mask(
    epsilon: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parties draw it, once each; who would draw it again could hide two terms with it."""
    drawn: list[bytes] = []
    real = sealing.mask

    def remember(key: bytes, words: int, dtype: Any) -> Any:
        drawn.append(key)
        return real(key, words, dtype)

    monkeypatch.setattr(sealing, "mask", remember)
    exchanged(parties_of(random_graph(), epsilon=epsilon))
    times = Counter(Counter(drawn).values())
    # For each of 4 owners, 3 of its own; and of the 3 other pairs, one of sums, one of numbers.
    assert times[2] == 4 * (3 + 3 * 2)
    assert times[1] == (0 if epsilon is None else 4 * 3)  # noise, of one party alone
    assert set(times) <= {1, 2}


def test_what_the_coordinator_can_add_up_are_numbers_of_far_ends() -> None:
    parties = parties_of(random_graph(edges=160))
    masked = by_owner(exchanged(parties))
    for owner, terms in masked.items():
        total = sum(term["numbers"] for term in terms.values())
        rows, (links,) = rows_of(parties[owner]), [parties[owner].data.links]
        assert total.tolist() == np.bincount(links.node)[rows].tolist()
        assert all(not np.array_equal(term["numbers"], total) for term in terms.values())


def test_letters_between_parties_look_like_noise_and_no_two_are_alike() -> None:
    carrier = exchanged(parties_of(random_graph(nodes=100, edges=600)))
    letters = [
        (verb, array)
        for verb, _, message in carrier.up
        for name, array in message.items()
        if name.isdecimal()
    ]
    assert {verb for verb, _ in letters} == {"request", "reply", "match", "places"}
    assert p_value(np.concatenate([array for _, array in letters])) > 1e-4
    nonces = [array[:12].tobytes() for _, array in letters]
    assert len(set(nonces)) == len(nonces) == 6 * 3 + 12


def test_two_seeds_and_two_secrets_have_nothing_in_common() -> None:
    graph = random_graph()
    plain, secret = parties_of(graph), parties_of(graph)
    secret = [Party(replace(p.data, secret=p.number + 1), p.config, p.classes) for p in secret]
    other = [Party(replace(p.data, seed=1), p.config, p.classes) for p in parties_of(graph)]
    seen: list[bytes] = []
    for parties in (plain, secret, other):
        carrier = exchanged(parties)
        for verb, _, message in carrier.up:
            seen += [a.tobytes()[:40] for n, a in message.items() if n.isdecimal() or n == "key"]
            seen += [message["sums"].tobytes()[:40]] if verb == "far ends" else []
    assert len(set(seen)) == len(seen)
    assert received(plain) == received(secret)


# What an owner sees.


@pytest.mark.parametrize("real", [True, False], ids=["real", "binary"])
def test_an_owner_cannot_tell_whose_term_is_whose(real: bool) -> None:
    """Nodes 2 and 5, of two parties, are both far ends of 0 and 1, and exchange what they are."""
    edges = [(0, 2), (0, 5), (0, 7), (1, 2), (1, 5), (1, 8)]
    x = np.random.default_rng(0).normal(size=(12, 30))
    x = x if real else (x > 0).astype(float)
    seen = []
    for swapped in (False, True):
        own = x.copy()
        if swapped:
            own[[2, 5]] = own[[5, 2]]
        carrier = exchanged(parties_of(graph_of(own, edges=edges)))
        got = [query for verb, n, query in carrier.down if (verb, n) == ("receive", 0)]
        seen.append([array.tobytes() for query in got for array in query.values()])
        others = [message["sums"] for n in (1, 2) for message in carrier.sent("far ends")[n]]
        seen[-1].append(len(others))
    assert seen[0] == seen[1]
    assert seen[0][-1] == 2


def lying_rows(parties: Sequence[Party], owner: int) -> None:
    """This owner asks for a row for each node with any far end."""
    data = parties[owner].data
    row = np.full(len(data.y), -1)
    row[np.unique(data.links.node)] = np.arange(len(np.unique(data.links.node)))
    parties[owner].made["rows"] = row, np.ones(len(data.links.node), dtype=bool)


@pytest.mark.parametrize("least", [2, 3, 5])
def test_rows_with_too_few_far_ends_are_for_nobody(least: int) -> None:
    """Whatever their owner asks for, the coordinator sees how many there are."""
    graph = random_graph(edges=110, real=True)
    honest, liars = (parties_of(graph, least=least) for _ in range(2))
    exchanged(honest)
    for liar in liars:
        lying_rows(liars, liar.number)
    carrier = exchanged(liars)
    few = 0
    for verb, number, query in carrier.down:
        if verb == "receive":
            party = liars[number]
            small = query["numbers"] < least
            few += int(small.sum())
            assert not query["sums"][small].any()
            own = np.bincount(party.data.links.node)[rows_of(party)]
            assert np.array_equal(query["numbers"], own)
            # Nor do masks that the owner can compute lie below: it has nothing to take them off.
            assert query["sums"][~small].all(axis=1).all()
            assert set(party.told[SUMS]["node"]) == set(rows_of(party)[~small])
    assert few > 5
    for key, value in received(honest).items():
        assert received(liars)[key] == value


# What ends a job, in one sentence.


def lost(verb: str, party: int) -> Hook:
    return lambda what, number, reply: None if (what, number) == (verb, party) else reply


@pytest.mark.parametrize("verb", ["key", "request", "reply", "match", "places", "receive"])
def test_a_party_that_is_lost_ends_the_job(verb: str) -> None:
    why = rf"needs every party while it adds up, but party 2 did not answer \({verb}\)"
    with pytest.raises(DataError, match=why):
        exchanged(parties_of(graph_of(NUMBERED)), after=lost(verb, 2))


def test_a_term_that_is_lost_ends_the_job() -> None:
    with pytest.raises(DataError, match="a party's term is missing in the sums for party 0"):
        exchanged(parties_of(graph_of(NUMBERED)), after=lost("far ends", 1))


@pytest.mark.parametrize(
    "change",
    [
        {"parties": np.array([2])},
        {"parties": np.array([0])},
        {"sums": np.zeros((1, 2))},
        {"sums": np.zeros((2, 2), np.uint16)},
        {"sums": np.zeros((3, 2), np.int64)},
        {"numbers": np.zeros(2, np.int64)},
        {"more": np.zeros(2)},
    ],
    ids=lambda change: f"{next(iter(change))} {next(iter(change.values())).shape}",
)
def test_a_term_that_cannot_be_is_refused_and_then_missing(change: dict[str, Any]) -> None:
    def wrong(verb: str, number: int, reply: dict[str, Any]) -> Message:
        return reply | change if (verb, number) == ("far ends", 1) else reply

    with pytest.raises(DataError, match="a party's term is missing in the sums for party"):
        exchanged(parties_of(graph_of(NUMBERED)), after=wrong)


@pytest.mark.parametrize(
    ("verb", "change"),
    [
        ("key", {"key": np.zeros(31, np.uint8)}),
        ("key", {"key": np.zeros(32, np.int64)}),
        ("request", {"0": np.zeros(5, np.uint8)}),
        ("request", {"9": np.zeros(5, np.uint8)}),
        ("request", {"3": np.zeros(5)}),
        ("request", {"text": np.zeros(5)}),
        ("places", {"rows": np.array([4])}),
        ("places", {"rows": np.array([-1])}),
        ("places", {"rows": np.array(1)}),
        ("places", {"bits": np.array([32])}),
    ],
    ids=lambda change: str(change)[:30],
)
def test_replies_that_cannot_be_are_refused(verb: str, change: dict[str, Any]) -> None:
    party = 0 if "0" in change else 2  # a letter to oneself

    def wrong(what: str, number: int, reply: dict[str, Any]) -> Message:
        return reply | change if (what, number) == (verb, party) else reply

    with pytest.raises(DataError, match=rf"did not answer \({verb}\)"):
        exchanged(parties_of(graph_of(NUMBERED)), after=wrong)


def test_parties_must_agree_on_what_is_a_number() -> None:
    def wrong(verb: str, number: int, reply: dict[str, Any]) -> Message:
        return reply | {"bits": np.array([16])} if (verb, number) == ("places", 2) else reply

    with pytest.raises(DataError, match="do not agree on which features are numbers"):
        exchanged(parties_of(graph_of(NUMBERED)), after=wrong)


def test_a_key_that_the_coordinator_puts_in_anothers_place_is_noticed() -> None:
    """By one of the two, as long as it does not put itself between both."""
    parties = parties_of(graph_of(NUMBERED))

    def wrong(verb: str, number: int, reply: dict[str, Any]) -> Message:
        if (verb, number) == ("key", 2):
            return {"key": neighbours._keys(parties_of(graph_of(NUMBERED), least=1)[3]).public}
        return reply

    with pytest.raises(DataError, match=r"its own public key|was changed on its way"):
        exchanged(parties, after=wrong)


def test_sealed_letters_have_an_address_and_a_limit() -> None:
    check, letter = Sealed([0, 1, 2]), np.zeros(3, np.uint8)
    assert check(0, {"1": letter, "2": letter}) == ""
    assert check(0, {"0": letter}) == check(0, {"3": letter}) == "has a message for nobody"
    assert check(0, {"1": letter[None]}) == "has a message that is not sealed"
    assert check.nbytes == 1 << 28


# Whole jobs.


@pytest.mark.parametrize("values", ["features", "encoding", "labels"])
def test_it_is_asked_once_and_counts_the_nodes_that_got_a_sum(values: str) -> None:
    parties = parties_of(random_graph(real=True), values=values)
    carrier, outcome = job(parties)
    assert outcome.chosen["received"] == [len(party.told[SUMS]["node"]) for party in parties]
    owners = [int(query["owner"]) for verb, _, query in carrier.down if verb == "far ends"]
    assert sorted(owners) == sorted(k for k in range(4) for _ in range(3))
    # The model's far ends have columns of their own.
    columns = {"features": 20, "encoding": 25, "labels": 23}[values]
    (weights,) = {tuple(p.weights[f"{METHOD}/shared"].first.shape) for p in parties}
    assert weights[0] == columns


def test_nobody_has_enough_far_ends() -> None:
    parties = parties_of(random_graph(edges=30), least=40)
    _, outcome = job(parties)
    assert outcome.chosen["received"] == [0, 0, 0, 0]
    (note,) = outcome.notes
    assert "+neighbours changes nothing: no sum has 40 or more far ends" in note


def test_the_ledger_has_every_array_that_passed() -> None:
    parties = parties_of(random_graph())
    carrier = Loopback(parties)
    names = [party.data.name for party in parties]
    session = Session(parties[0].config, 3, 20, carrier.census, names)
    carrier.carry(session.method(METHOD))
    entries = {(e.verb, e.array, e.direction) for e in carrier.ledger if "neighbours/" in e.part}
    assert {("key", "key", "up"), ("", "keys", "down"), ("receive", "sums", "down")} <= entries
    assert {array for verb, array, way in entries if (verb, way) == ("far ends", "up")} == {
        *("sums", "numbers", "parties")
    }


def test_over_a_network_keys_and_masks_follow_from_32_random_bytes(
    tmp_path: Path, toy_sites: Callable[..., Path]
) -> None:
    """Which stay at their site, and are the same when it begins again."""
    sites = toy_sites(tmp_path / "sites", ("ada", "bob", "cleo"))
    wire = InProcess(members(sites))
    Coordinator(make_job(rounds=1), read_schema(sites / SCHEMA_FILE), wire).run()
    drawn = []
    for name, member in wire._members.items():
        (file,) = sites.glob(f"{name}/.fedcover/*/secret.npz")
        held = np.load(file)["secret"]
        assert (held.dtype, held.shape) == (np.uint8, (32,))
        drawn.append(member._under_way.party(0).data.secret)
        assert drawn[-1].to_bytes(32, "big") == held.tobytes()
    assert len(set(drawn)) == 3
    assert min(drawn) >> 192
