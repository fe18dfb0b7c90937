"""What a party adds up over far ends, what it answers nobody, and the noise that it adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import private_set_intersection.python as psi
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover import matching
from fedcover.carriers.stacked import Stacked
from fedcover.conformal import softmax
from fedcover.errors import DataError
from fedcover.graphs.links import matched as with_equal_keys_linked
from fedcover.models import initial_weights
from fedcover.party import neighbour_rows, neighbour_values, neighbours
from fedcover.party.data import Links
from fedcover.party.party import Party
from fedcover.plans import KEYS, MATCHING, SCALING, SUMMARISER, SUMS
from fedcover.privacy import gaussian_multiplier
from fedcover.training.plan import initialiser
from fedcover.training.program import hidden_layer

from .linked import (
    CLIENT,
    EDGES,
    Hook,
    chosen,
    exchanged,
    graph_of,
    parties_of,
    random_graph,
    received,
    rows_of,
    talk,
    with_links,
)

NUMBERED = np.stack([np.arange(12.0), np.ones(12)], axis=1)  # of each node its number, and 1


def far_ends(parties: Sequence[Party]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """By party and own node, the far ends that the parties list: parties and nodes."""
    by_key: dict[Any, list[tuple[int, int]]] = {}
    for party in parties:
        for node, key in zip(party.data.links.node, party.data.links.key.tolist(), strict=True):
            by_key.setdefault(key, []).append((party.number, int(node)))
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one, other in (ends for ends in by_key.values() if len(ends) == 2):
        found.setdefault(one, []).append(other)
        found.setdefault(other, []).append(one)
    return found


def same_as_plain(parties: Sequence[Party], least: int, values: Callable[[Party], Any]) -> int:
    """That every party has the plain means of its rows; how many rows there are."""
    ends, found = far_ends(parties), received(parties)
    rows = [(one.number, int(node)) for one in parties for node in rows_of(one)]
    assert sorted(found) == sorted(rows)
    held = [np.asarray(v.toarray() if sp.issparse(v) else v) for v in map(values, parties)]
    for own, (number, mean) in found.items():
        assert number == len(ends[own]) >= least
        expected = np.mean([held[party][node] for party, node in ends[own]], axis=0)
        np.testing.assert_allclose(mean, expected, rtol=1e-6, atol=2.0**-23)
    if least == 1:
        assert sorted(found) == sorted(ends)
    return len(found)


# Sums and means.


def test_four_parties_by_hand() -> None:
    parties = parties_of(graph_of(NUMBERED), least=2)
    exchanged(parties)
    assert received(parties) == {
        (0, 0): (3, [pytest.approx((2 + 3 + 5) / 3), 1]),
        (0, 1): (4, [(2 + 5 + 6 + 7) / 4, 1]),
        (1, 0): (2, [(0 + 1) / 2, 1]),
        (2, 0): (2, [(0 + 1) / 2, 1]),
    }


def test_the_mean_becomes_one_more_neighbour() -> None:
    party, *_ = parties = parties_of(graph_of(NUMBERED), least=2)
    exchanged(parties)
    graph = neighbours.joined(party, party.graph)
    assert (graph.own, graph.generated) == (3, 2)
    np.testing.assert_allclose(graph.x[3:], [[10 / 3, 1], [5, 1]], rtol=1e-6)
    assert graph.edge_index.tolist() == [[3, 4, 0, 1], [0, 1, 3, 4]]
    np.testing.assert_allclose(graph.edge_weight, np.sqrt([3, 4, 3, 4]))


@pytest.mark.parametrize("private", [True, False], ids=["private", "open"])
@pytest.mark.parametrize("least", [1, 2, 3, 5])
@pytest.mark.parametrize("real", [True, False], ids=["real", "binary"])
def test_sums_are_the_plain_ones(real: bool, least: int, private: bool) -> None:
    graph = random_graph(edges=160, real=real)
    parties = parties_of(graph, least=least, matching="private" if private else "open")
    exchanged(parties)
    assert same_as_plain(parties, least, lambda party: party.data.x) > 5


def test_features_of_ones_and_zeros_are_counted_in_16_bits() -> None:
    for real, kind in ((False, np.uint16), (True, np.int64)):
        carrier = exchanged(parties_of(random_graph(real=real)))
        sums = [query["sums"] for verb, _, query in carrier.down if verb == "receive"]
        assert {one.dtype for one in sums} == {np.dtype(kind)}


def sparse_graph(real: bool) -> Any:
    rng = np.random.default_rng(1)
    x = (rng.random((40, 30)) < 0.05) * (rng.normal(size=(40, 30)) if real else 1.0)
    x[:, 0] = np.arange(40) % 2
    graph = graph_of(x, np.arange(40) % 3, rng.integers(0, 40, (120, 2)))
    assert graph.x.is_sparse_csr
    return graph


@pytest.mark.parametrize("real", [True, False], ids=["real", "binary"])
@pytest.mark.parametrize("kind", ["private", "open"])
def test_sparse_features_have_the_same_sums(kind: str, real: bool) -> None:
    parties = parties_of(sparse_graph(real), matching=kind)
    exchanged(parties)
    assert same_as_plain(parties, 3, lambda party: party.data.x) > 5
    graph = neighbours.joined(parties[0], parties[0].graph)
    assert sp.issparse(graph.x)


def all_told(parties: Sequence[Party]) -> list[bytes]:
    return [party.told[SUMS][name].tobytes() for party in parties for name in ("node", "mean")]


@pytest.mark.parametrize("make", [random_graph, sparse_graph])
@pytest.mark.parametrize("real", [True, False], ids=["real", "binary"])
def test_matching_and_carriers_change_no_bit(make: Callable[..., Any], real: bool) -> None:
    graph = make(real=real)
    told = []
    for kind in ("private", "open"):
        alone, together = (parties_of(graph, matching=kind) for _ in range(2))
        carrier = exchanged(alone)
        stacked = Stacked([type(carrier)(together)])
        stacked.carry([talk(together)])
        told += [all_told(alone), all_told(together)]
    assert all(one == told[0] for one in told)


def with_model(parties: Sequence[Party], seed: int = 0) -> None:
    for party in parties:
        size = party.data.x.shape[1], party.config.hidden, party.classes
        weights = initial_weights(party.config.model, *size, initialiser(seed))
        party.has_model(SUMMARISER, weights, None)


@pytest.mark.parametrize("values", ["labels", "encoding"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_soft_labels_and_encodings_are_added_up(values: str, model: str) -> None:
    parties = parties_of(random_graph(real=True), values=values, model=model)
    with_model(parties)

    def made(party: Party) -> Any:
        if values == "labels":
            return softmax(party.logits(SUMMARISER))
        return hidden_layer(party.graph, party.weights[SUMMARISER], party.plan(SUMMARISER))

    exchanged(parties)
    assert same_as_plain(parties, 3, made) > 20
    # They stand in columns of their own, where nodes of one's own have zeros.
    party = parties[0]
    graph, columns = neighbours.joined(party, party.graph), party.data.x.shape[1]
    assert not graph.x[graph.own :, :columns].any()
    assert not graph.x[: graph.own, columns:].any()
    assert graph.x[graph.own :, columns:].any()


# Links.


def without(links: Links, node: int, party: int) -> Links:
    return chosen(links, ~((links.node == node) & (links.party == party)))


def test_an_edge_that_one_side_lists_is_used_by_none() -> None:
    zero, *others = parties_of(graph_of(NUMBERED), least=1)
    parties = [with_links(zero, without(zero.data.links, 0, 2)), *others]
    exchanged(parties)
    found = received(parties)
    assert found[0, 0] == (2, [2.5, 1])  # 2 and 3, without 5
    assert found[2, 0] == (1, [1, 1])  # 1, without 0


def test_what_one_side_lists_the_other_does_not_learn() -> None:
    """Two worlds: what party 2 lists besides is an edge to 0, or one to nobody."""
    found = []
    for key in (5, 1234):
        zero, one, two, three = parties_of(graph_of(NUMBERED), least=1)
        links = two.data.links
        assert links.key[links.party == 0].tolist() == [5, 17, 18]
        other = Links(links.node, links.party, links.far, np.where(links.key == 5, key, links.key))
        parties = [with_links(zero, without(zero.data.links, 0, 2)), one, with_links(two, other)]
        parties.append(three)
        carrier = exchanged(parties)
        told = {k: v for k, v in parties[0].told.items() if k.startswith((MATCHING, SUMS))}
        told = {k: {n: a.tobytes() for n, a in v.items()} for k, v in told.items()}
        sizes = [query[k].shape for _, number, query in carrier.down if number == 0 for k in query]
        opened = {name: told[name] for name in (f"{MATCHING} asked", f"{MATCHING} replied", SUMS)}
        found.append((opened, sizes))
    assert found[0] == found[1]


def test_a_party_without_links_takes_part_and_changes_nothing() -> None:
    graph = graph_of(np.append(NUMBERED, NUMBERED[:3], axis=0), [*CLIENT, 4, 4, 4])
    parties = parties_of(graph, least=2)
    exchanged(parties)
    assert len(received(parties)) == 4
    last = parties[-1]
    assert len(last.told[SUMS]["node"]) == 0
    joined = neighbours.joined(last, last.graph)
    assert (joined.nodes, joined.edge_index.shape) == (3, (2, 0))


def test_without_any_links_nobody_gets_anything() -> None:
    parties = parties_of(graph_of(NUMBERED, edges=[(2, 3)]), least=1)
    carrier = exchanged(parties)
    assert received(parties) == {}
    assert "far ends" not in {verb for verb, _, _ in carrier.up}


def test_a_link_that_is_listed_twice_is_refused() -> None:
    zero, *others = parties_of(graph_of(NUMBERED))
    twice = with_links(zero, chosen(zero.data.links, [0, 0, 1, 2, 3, 4, 5, 6]))
    with pytest.raises(DataError, match="to be matched is listed twice"):
        exchanged([twice, *others])


def test_the_order_of_a_list_says_nothing() -> None:
    plain = parties_of(graph_of(NUMBERED), least=2)
    turned = [with_links(p, chosen(p.data.links, slice(None, None, -1))) for p in plain]
    exchanged(plain)
    exchanged(turned)
    assert all_told(plain) == all_told(turned)


def test_values_and_numbers_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"a feature is 50000; .* --standardise"):
        exchanged(parties_of(graph_of(NUMBERED * 5000), least=2))
    monkeypatch.setattr(neighbour_values, "MOST", 4)
    with pytest.raises(DataError, match="a sum has 4 far ends; sums take fewer"):
        exchanged(parties_of(graph_of(NUMBERED), least=2))


def test_the_largest_values_fit() -> None:
    edge = 2.0**15 - 2.0**-8
    parties = parties_of(graph_of(np.full((12, 1), -edge)), least=2)
    exchanged(parties)
    assert {mean[0] for _, mean in received(parties).values()} == {-edge}


# Parties that do not keep to the protocol.

STAR = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (5, 2), (5, 3), (6, 4)]


@pytest.fixture
def matched() -> list[Party]:
    """Four parties that have matched their links; party 0 and the nodes of 1 are all linked."""
    parties = parties_of(graph_of(NUMBERED, edges=STAR), values="features")
    exchanged(parties)
    for party in parties:
        for name in [name for name in party.told if name.startswith(SUMS)]:
            del party.told[name]
        party.made.pop("summaries", None)
    return parties


def asks(owner: Party, other: Party, rows: int, places: Sequence[int] | bytes) -> Any:
    """What the owner would ask of another party, and its answer."""
    said = places if isinstance(places, bytes) else np.array(places, np.int32).tobytes()
    letter = neighbours._sealed(owner, other.number, "places", said)
    query = {"owner": np.array(owner.number), "rows": np.array(rows), str(other.number): letter}
    return other.answer(SUMS, "far ends", 0, query)


def test_a_question_that_comes_again_gets_the_same_answer(matched: list[Party]) -> None:
    first, second = (asks(matched[0], matched[1], 2, [0, 0, 0, 1, 1, 1]) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("rows", "places"), [(2, [1, 0, 0, 0, 1, 1]), (3, [0, 0, 0, 1, 1, 1])])
def test_other_rows_under_the_same_masks_are_refused(
    matched: list[Party], rows: int, places: list[int]
) -> None:
    asks(matched[0], matched[1], 2, [0, 0, 0, 1, 1, 1])
    with pytest.raises(DataError, match="rows were asked for already, and were others"):
        asks(matched[0], matched[1], rows, places)


def begun_again(parties: Sequence[Party]) -> list[Party]:
    """Each in a new process, so to speak."""
    return [Party(p.data, p.config, p.classes, p.told, p.weights) for p in parties]


def test_another_scale_under_the_same_masks_is_refused() -> None:
    """A coordinator that could send one would see the difference between two terms."""
    parties = parties_of(random_graph(real=True))
    exchanged(parties)
    again, columns = begun_again(parties), parties[0].data.x.shape[1]
    told = {"mean": np.ones(columns), "scale": np.ones(columns), "fill": np.zeros(columns)}
    for party in again:
        party.tell(SCALING, told)
    with pytest.raises(DataError, match="rows were asked for already, and were others"):
        exchanged(again)


@pytest.mark.parametrize("values", ["features", "labels", "encoding"])
def test_who_begins_again_sends_the_same_whatever_model_has_come(values: str) -> None:
    parties = parties_of(random_graph(real=True), values=values)
    with_model(parties)
    first = exchanged(parties)
    again = begun_again(parties)
    with_model(again, seed=1)
    second = exchanged(again)
    for left, right in zip(first.up, second.up, strict=True):
        assert left[:2] == right[:2]
        assert all(np.array_equal(left[2][name], right[2][name]) for name in left[2] | right[2])


@pytest.mark.parametrize("parties", [2, 3])
def test_two_or_three_parties_are_enough(parties: int) -> None:
    """Of two, one adds all of a sum: only the other one's mask hides it from the coordinator."""
    both = parties_of(random_graph(parties, real=True), least=3)
    exchanged(both)
    assert same_as_plain(both, 3, lambda party: party.data.x) > 20


@pytest.mark.parametrize(
    ("places", "why"),
    [
        ([0, 1, -1, 0, 1, -1], "has the same far end twice"),
        ([0, 0, 0, 0, 0, 0], "has the same far end twice"),
        ([0, 0, 0, 1, 1, 2], "do not fit"),
        ([0, 0, 0, 1, 1, -2], "do not fit"),
        ([0, 0, 0, 1, 1], "do not fit"),
        ([0, 0, 0, 1, 1, 1, 1], "do not fit"),
        (bytes(23), "do not fit"),
        (b"", "do not fit"),
    ],
)
def test_rows_that_an_honest_owner_does_not_ask_for(
    matched: list[Party], places: list[int] | bytes, why: str
) -> None:
    """A sum of three times the same far end would be that far end."""
    with pytest.raises(DataError, match=why):
        asks(matched[0], matched[1], 2, places)
    asks(matched[0], matched[1], 2, [0, 0, 0, 1, 1, 1])  # a lie does not spoil what is true


def at(where: tuple[str, int], change: Callable[[dict[str, Any]], None]) -> Hook:
    """Change this verb's query to this party."""

    def hook(verb: str, number: int, query: dict[str, Any]) -> None:
        if (verb, number) == where:
            change(query)

    return hook


def test_letters_of_others_or_missing_ones_are_refused() -> None:
    def forget(query: dict[str, Any]) -> None:
        query.pop(next(name for name in query if name.isdecimal()))

    for where in (("reply", 2), ("match", 0), ("places", 3)):
        with pytest.raises(DataError, match="are not those of all other parties"):
            exchanged(parties_of(graph_of(NUMBERED)), before=at(where, forget))

    def swap(query: dict[str, Any]) -> None:
        first, second, *_ = sorted(name for name in query if name.isdecimal())
        query[first], query[second] = query[second], query[first]

    for where in (("reply", 2), ("match", 0), ("places", 3), ("match", 1)):
        with pytest.raises(DataError, match="was changed on its way, or is another one"):
            exchanged(parties_of(graph_of(NUMBERED)), before=at(where, swap))


def told_links(party: Party, sender: Party, content: bytes) -> None:
    """Party ``sender`` says which links match."""
    letters = {
        str(k): neighbours._sealed(other, party.number, "links", b"")
        for k, other in enumerate((sender, sender)[: party.number])
    }
    letters[str(sender.number)] = neighbours._sealed(sender, party.number, "links", content)
    party.answer(MATCHING, "places", 0, letters | {"parties": np.arange(4)})


def test_a_link_that_is_claimed_twice_or_is_not_listed_is_refused(matched: list[Party]) -> None:
    zero, one, *_ = matched
    one.made = {}
    tag, *_ = neighbours._tags(zero, 1, neighbours._items(zero, 1))
    for content in (tag * 3, bytes(16), tag[:-1], tag + b"x"):
        with pytest.raises(DataError, match="not among this one's, or twice"):
            told_links(one, zero, content)
    told_links(one, zero, tag)
    assert len(one.told[f"{MATCHING} replied"]["0"]) == 1


def test_who_makes_up_an_answer_is_not_told_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one link in common (and luck) all can be made to look so; they stay unknown."""
    parties = parties_of(graph_of(NUMBERED, edges=STAR))
    zero, liar = parties[:2]
    # The liar has one of six.
    liar = with_links(liar, chosen(liar.data.links, np.flatnonzero(liar.data.links.party == 0)[:1]))
    (known,), items = (liar.data.links.key.tolist(), [2, 3, 4, 14, 15, 16])
    assert (zero.data.links.key[zero.data.links.party == 1]).tolist() == items

    def forged(_items: Sequence[str], message: bytes, _secret: bytes) -> bytes:
        secret = neighbours._secret(zero, "matching 1")
        spelt = [str(item) for item in items]
        order = matching._order(spelt, secret, matching._digest(spelt))
        points = [message[k : k + 33] for k in range(16, len(message), 33)]
        point, own, returned = points[order.index(items.index(known))], [], []
        for k in range(len(points)):
            server = psi.server.CreateFromKey(bytes(31) + bytes([k + 2]), True)
            asked = psi.Request(reveal_intersection=True, encrypted_elements=[point])
            returned += server.ProcessRequest(asked).encrypted_elements
            setup = server.CreateSetupMessage(0.0, 1, [str(known)], psi.DataStructure.RAW)
            own += setup.raw.encrypted_elements
        return message[:16] + b"".join(sorted(own) + returned)

    federation = [zero, liar, *parties[2:]]
    real = matching.reply

    def answered(own: Sequence[str], message: bytes, secret: bytes) -> bytes:
        lies = secret == neighbours._secret(liar, "matching 0")
        return (forged if lies else real)(own, message, secret)

    monkeypatch.setattr(matching, "reply", answered)
    letters = []

    def read(verb: str, number: int, query: dict[str, Any]) -> None:
        if (verb, number) == ("places", 1):
            letters.append(neighbours._opened(liar, 0, "links", query["0"]))

    with pytest.raises(DataError, match="not among this one's"):  # an honest party would say so
        exchanged(federation, before=read)
    assert len(zero.told[f"{MATCHING} asked"]["1"]) == len(items)  # the attack works so far
    (letter,) = letters
    assert len(letter) == 16 * len(items)
    assert not any(str(item).encode() in letter for item in items if item > 9)


def test_keys_come_before_links() -> None:
    party, *_ = parties_of(graph_of(NUMBERED))
    with pytest.raises(DataError, match=f"{KEYS} is not known here"):
        party.answer(MATCHING, "request", 0, {})


# Which sums are asked for.


def follow(sums: list[list[int]]) -> set[int]:
    """The far ends whose unit vectors are in the row space, of fractions or modulo 2."""
    return _follow(sums, lambda value: value) | _follow(sums, lambda value: value % 2)


def _follow(sums: list[list[int]], reduced: Callable[[Fraction], Fraction]) -> set[int]:
    rows, done = [[Fraction(value) for value in row] for row in sums], 0
    columns = len(sums[0]) if sums else 0
    for column in range(columns):
        pivot = next((k for k in range(done, len(rows)) if rows[k][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        rows[done] = [value / rows[done][column] for value in rows[done]]
        for k in range(len(rows)):
            if k != done and rows[k][column]:
                factor = rows[k][column]
                change = zip(rows[k], rows[done], strict=True)
                rows[k] = [reduced(a - factor * b) for a, b in change]
        done += 1
    kept = [[k for k, value in enumerate(row) if value] for row in rows[:done]]
    return {places[0] for places in kept if len(places) == 1}


def kept_of(sums: list[list[int]], seed: int = 0) -> list[int]:
    matrix = sp.csr_array(np.array(sums, dtype=float))
    return neighbour_rows.undetermined(matrix, np.random.default_rng(seed)).tolist()


@st.composite
def incidence(draw: st.DrawFn) -> list[list[int]]:
    columns = draw(st.integers(2, 9))
    row = st.sets(st.integers(0, columns - 1), min_size=2, max_size=columns)
    rows = draw(st.lists(row, min_size=1, max_size=9))
    return [[int(k in own) for k in range(columns)] for own in rows]


@given(incidence(), st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_no_far_end_follows_from_the_sums_that_are_kept(sums: list[list[int]], seed: int) -> None:
    kept = kept_of(sums, seed)
    assert kept == sorted(set(kept))
    assert not follow([sums[k] for k in kept])
    if not follow(sums):
        assert kept == list(range(len(sums)))
    else:
        assert len(kept) < len(sums)


def test_sums_by_hand() -> None:
    assert kept_of([[1, 1, 1, 1], [1, 1, 1, 0]]) == [1]  # {a, b, c, d} less {a, b, c}
    assert kept_of([[1, 1, 1, 0], [0, 1, 1, 1]]) == [0, 1]
    assert len(kept_of([[1, 1, 0], [0, 1, 1], [1, 0, 1]])) in (1, 2)  # all three tell all
    assert kept_of([[1, 1, 1], [1, 1, 1]]) == [0, 1]  # alike: nothing follows
    # Together they have a three times and the others twice: a's parity.
    assert len(kept_of([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 1]])) == 2


@pytest.mark.parametrize("more", [0, 1])
def test_long_chains_are_seen_through(more: int) -> None:
    """Windows of three, and one of four at the start: a third of all far ends follow."""
    n = 600
    windows = sp.diags_array([1.0, 1, 1], offsets=[0, 1, 2], shape=(n, n + 2), format="csr")
    start = sp.csr_array(([1.0] * 4, ([0] * 4, range(4))), shape=(1, n + 2))
    sums = sp.vstack([windows, *[start] * more], format="csr")
    kept = neighbour_rows.undetermined(sums, np.random.default_rng(0))
    assert len(kept) < n + more if more else len(kept) == n
    # Of the rest: a null vector that is nowhere zero (Σ of three in a row, and of the four).
    own = sums[kept].toarray()
    _, singular, right = np.linalg.svd(own)
    null = right[np.count_nonzero(singular > 1e-9) :]
    there = own.any(axis=0)
    assert (np.abs(null).max(axis=0) > 1e-9)[there].all()


def test_a_party_does_not_ask_for_what_would_tell_one_far_end() -> None:
    """Node 0 has 2, 3, 4, and node 1 has 2, 3, 4 and 5."""
    edges = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (1, 5)]
    parties = parties_of(graph_of(NUMBERED, edges=edges))
    exchanged(parties)
    assert received(parties) == {(0, 0): (3, [3, 1])}
    # Noise may be little, so that it makes no difference.
    parties = parties_of(graph_of(NUMBERED, edges=edges), epsilon=1.0)
    exchanged(parties)
    assert set(received(parties)) == {(0, 0)}


# Noise.


def difference(parties: Sequence[Party], plain: Sequence[Party]) -> np.ndarray:
    """The noise in all sums that arrived."""
    found, expected = received(parties), received(plain)
    assert set(found) >= set(expected)
    noise = [n * (np.array(m) - expected[k][1]) for k, (n, m) in found.items() if k in expected]
    return np.concatenate(noise)


@pytest.mark.parametrize("cap", [None, 100])
def test_the_noise_is_what_is_claimed_and_enough_without_one_party(cap: int | None) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 400)) / 100  # so short that nothing is clipped
    graph = graph_of(x, np.arange(50) % 5, rng.integers(0, 50, (400, 2)))
    noisy, plain = parties_of(graph, epsilon=1.0, cap=cap), parties_of(graph, least=1)
    exchanged(noisy)
    exchanged(plain)
    reach = gaussian_multiplier(1.0, 1e-5) * np.sqrt(cap or 1)
    noise = difference(noisy, plain)
    assert len(noise) > 10_000
    # Four parties add to each sum; three of them are enough.
    assert noise.std() == pytest.approx(reach * np.sqrt(4 / 3), rel=0.03)
    assert abs(noise.mean()) < 0.05 * reach
    shares = [neighbours._noise(p, 0, (50, 400)) / 2.0**24 for p in noisy[1:]]
    for share in shares:
        assert share.std() == pytest.approx(reach / np.sqrt(3), rel=0.03)
        without = sum(shares) - share
        assert without.std() == pytest.approx(reach, rel=0.03)
    assert np.abs(np.corrcoef([share.ravel() for share in shares])[np.triu_indices(4, 1)]).max() < (
        0.03
    )
    # Other owners get other noise.
    other = neighbours._noise(noisy[1], 2, (50, 400)) / 2.0**24
    assert abs(np.corrcoef(other.ravel(), shares[0].ravel())[0, 1]) < 0.03


@pytest.mark.parametrize("parties", [2, 3])
def test_with_few_parties_each_adds_all_of_it(parties: int) -> None:
    graph = random_graph(parties, real=True)
    one = parties_of(graph, epsilon=2.0)[1]
    one.tell(KEYS, {"keys": np.zeros((parties, 32), np.uint8)})
    share = neighbours._noise(one, 0, (100, 100)) / 2.0**24
    assert share.std() == pytest.approx(gaussian_multiplier(2.0, 1e-5), rel=0.03)


def test_values_are_shortened_to_the_norm() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)) * np.array([0.1, 10])[np.arange(40) % 2][:, None]
    graph = graph_of(x, np.arange(40) % 3, [(0, 1)])
    for norm in (0.5, 3.0):
        for party in parties_of(graph, epsilon=1.0, norm=norm):
            values = neighbour_values.values_of(party) / 2.0**24
            own, length = party.data.x, np.linalg.norm(party.data.x, axis=1)
            assert (np.linalg.norm(values, axis=1) <= norm * (1 + 1e-6)).all()
            short = length <= norm
            np.testing.assert_allclose(values[short], own[short], atol=1e-6)
            scaled = norm * own / length[:, None]
            np.testing.assert_allclose(values[~short], scaled[~short], atol=1e-6)


@pytest.mark.parametrize("cap", [1, 2, 4])
def test_no_node_enters_more_sums_than_the_cap(cap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node has a feature of its own, and there is no noise."""
    monkeypatch.setattr(neighbours, "_noise", lambda _party, _owner, shape: np.zeros(shape, int))
    rng, n = np.random.default_rng(0), 24
    graph = graph_of(np.eye(n), np.arange(n) % 3, rng.integers(0, n, (200, 2)))
    parties = parties_of(graph, epsilon=1.0, cap=cap, least=1)
    exchanged(parties)
    enters = np.zeros(n)
    for number, mean in received(parties).values():
        row = number * np.array(mean)
        np.testing.assert_allclose(row, row.round(), atol=1e-4)
        assert row.sum() == pytest.approx(number, abs=1e-4)
        enters += row.round()
    assert enters.max() == cap
    assert np.array_equal(enters, np.minimum(cap, [len(ends_of(k)) for k in range(n)]))


def ends_of(node: int) -> set[int]:
    """Of the graph above."""
    n, pairs = 24, np.random.default_rng(0).integers(0, 24, (200, 2))
    linked = {frozenset(pair) for pair in pairs.tolist() if pair[0] % 3 != pair[1] % 3}
    return {other for other in range(n) if {node, other} in linked}


def test_infinite_epsilon_means_no_noise() -> None:
    graph = random_graph(real=True)
    plain, infinite = parties_of(graph), parties_of(graph, epsilon=float("inf"))
    exchanged(plain)
    exchanged(infinite)
    assert all_told(plain) == all_told(infinite)


def test_edges_of_the_small_federation() -> None:
    """So that numbers above can be checked by eye."""
    parties = parties_of(graph_of(NUMBERED))
    cut = [(a, b) for a, b in EDGES if CLIENT[a] != CLIENT[b]]
    assert sum(len(party.data.links.key) for party in parties) == 2 * len(cut) == 14


# What is one, and what is none.


def test_records_of_one_person_are_one_far_end() -> None:
    """Five parties that know the same people: a row has three people or more."""
    graph = graph_of(np.eye(60), [k % 5 for k in range(60)], [(0, 5), (5, 10), (1, 6)])
    graph.match_keys = [f"person {k // 5}" for k in range(60)]
    graph.match_column = "person"
    parties = parties_of(with_equal_keys_linked(graph), shared=True)
    exchanged(parties)
    for party in parties:
        links, (row, adds) = party.data.links, neighbours._rows(party)
        people = [set(links.key[adds & (row[links.node] == k)]) for k in range(row.max() + 1)]
        assert people
        assert min(map(len, people)) >= 3
        counts = np.bincount(row[links.node[adds]])
        assert counts.tolist() == [4 * len(own) for own in people]  # all of their records
    alone = parties_of(with_equal_keys_linked(graph))
    exchanged(alone)
    assert not received(alone)  # four far ends each, and all of them are one person


def test_of_two_parties_either_counts_the_far_ends_itself() -> None:
    """There the number that only a coordinator sees else is the one party's own."""
    edges = [(0, 2), (0, 3), (0, 4), (1, 2)]
    parties = parties_of(graph_of(np.eye(8), [0, 0, 1, 1, 1, 0, 1, 0], edges))
    exchanged(parties)
    owner = parties_of(graph_of(np.eye(8), [0, 0, 1, 1, 1, 0, 1, 0], edges))
    owner[0].made["rows"] = np.array([-1, 0, -1, -1]), owner[0].data.links.node == 1
    with pytest.raises(DataError, match="the other party asks for has fewer than 3 far ends"):
        exchanged(owner)


def test_a_gap_looks_like_the_party_s_mean_and_alike_in_all_seeds() -> None:
    """With a mean that all know, and that differs by seed, a sum would show how many gaps it has,
    and with two gaps the third value."""
    x, gaps = np.arange(24.0).reshape(12, 2) ** 2, np.zeros((12, 2), dtype=bool)
    gaps[[2, 3], 0] = True
    x[gaps] = 0
    graph = graph_of(x)
    graph.missing = torch.from_numpy(np.stack(np.nonzero(gaps)))
    found = []
    for fill in (5.0, 500.0):
        parties = parties_of(graph)
        for party in parties:
            mean = np.array([fill, 0.0], np.float32)
            party.tell(SCALING, {"mean": 0 * mean, "scale": 1 + 0 * mean, "fill": mean})
        exchanged(parties)
        found.append(received(parties))
    # Party 1 has the nodes 2, 3 and 4; of the first column it knows the last one's value alone.
    own = x[4, 0]
    assert found[0] == found[1]
    assert found[0][0, 0] == (3, [(2 * own + x[5, 0]) / 3, (x[2, 1] + x[3, 1] + x[5, 1]) / 3])
