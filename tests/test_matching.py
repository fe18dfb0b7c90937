"""Private matching: equal to the plain intersection, and silent about everything else."""

from __future__ import annotations

import numpy as np
import private_set_intersection.python as psi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcover import matching
from fedcover.errors import DataError
from fedcover.matching import common, reply, request
from fedcover.sealing import seal, unseal

ASKER, ANSWERER = b"the secret of one", b"the secret of the other"
POINT, TAG = 33, 16
ITEMS = [f'["ada/{k}", "bob/{k}"]' for k in range(6)]
OTHERS = [*ITEMS[2:5], "more", "and more"]

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
lists = st.lists(text, max_size=7, unique=True)


def points(data: bytes) -> list[bytes]:
    return [data[start : start + POINT] for start in range(0, len(data), POINT)]


def matched(items: list[str], others: list[str]) -> list[int]:
    return common(items, ASKER, reply(others, request(items, ASKER), ANSWERER))


@given(lists, lists, st.data())
@settings(max_examples=60, deadline=None)
def test_it_is_the_intersection(items: list[str], others: list[str], data: st.DataObject) -> None:
    shared = data.draw(st.lists(st.sampled_from(items), unique=True)) if items else []
    others = data.draw(st.permutations(list(dict.fromkeys([*others, *shared]))))
    assert matched(items, others) == [k for k, item in enumerate(items) if item in set(others)]


@pytest.mark.parametrize(
    ("items", "others"),
    [([], []), ([], OTHERS), (ITEMS, []), (["a"], ["A"]), (["\u00e9"], ["e\u0301"])],
)
def test_empty_lists_and_texts_that_only_look_alike(items: list[str], others: list[str]) -> None:
    assert matched(items, others) == []


def test_a_list_with_an_item_twice_or_no_text_is_refused() -> None:
    asked = request(ITEMS, ASKER)
    for make in (lambda own: request(own, ASKER), lambda own: reply(own, asked, ANSWERER)):
        with pytest.raises(DataError, match="the item 'b' to be matched is listed twice"):
            make(["a", "b", "b"])
        with pytest.raises(DataError, match="is not Unicode text"):
            make(["\ud800"])


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="must have 16 bytes, but has 4"):
        request(ITEMS, b"four")


# Messages that are not as they were.


@pytest.fixture(scope="module")
def asked() -> bytes:
    return request(ITEMS, ASKER)


@pytest.fixture(scope="module")
def answer(asked: bytes) -> bytes:
    return reply(OTHERS, asked, ANSWERER)


def test_a_changed_byte_of_an_answer_never_makes_a_match(answer: bytes) -> None:
    rng = np.random.default_rng(0)
    for place in range(len(answer)):
        other = bytearray(answer)
        other[place] ^= int(rng.integers(1, 256))
        try:
            found = common(ITEMS, ASKER, bytes(other))
        except DataError:
            continue
        assert set(found) <= {2, 3, 4}


def test_a_changed_byte_of_a_request_never_makes_a_match(asked: bytes) -> None:
    rng = np.random.default_rng(0)
    for place in range(len(asked)):
        other = bytearray(asked)
        other[place] ^= int(rng.integers(1, 256))
        try:
            found = common(ITEMS, ASKER, reply(OTHERS, bytes(other), ANSWERER))
        except DataError:
            continue
        assert set(found) <= {2, 3, 4}


def test_cut_messages_are_refused(asked: bytes, answer: bytes) -> None:
    for size in range(len(asked)):
        if size < TAG or (size - TAG) % POINT:
            with pytest.raises(DataError, match="the request to match items is cut short"):
                reply(OTHERS, asked[:size], ANSWERER)
    for size in range(len(answer)):
        if size < TAG + POINT * len(ITEMS) or (size - TAG) % POINT:
            with pytest.raises(DataError, match="the answer to match items is"):
                common(ITEMS, ASKER, answer[:size])


def test_other_messages_are_refused(asked: bytes, answer: bytes) -> None:
    own, returned = points(answer[TAG:])[:5], points(answer[TAG:])[5:]
    tag = answer[:TAG]
    with pytest.raises(DataError, match="is not in order"):
        common(ITEMS, ASKER, tag + b"".join(own[::-1] + returned))
    for twice in (own[:1] * 2 + own[2:] + returned, own + returned[:1] * 2 + returned[2:]):
        with pytest.raises(DataError, match="has an item twice"):
            common(ITEMS, ASKER, tag + b"".join(twice))
    with pytest.raises(DataError, match="has an item twice"):
        reply(OTHERS, asked[:TAG] + 2 * asked[TAG : TAG + POINT], ANSWERER)
    with pytest.raises(DataError, match="is no point of the curve"):
        reply(OTHERS, asked[:TAG] + b"\2" + 32 * b"\xff", ANSWERER)
    with pytest.raises(DataError, match="is no point of the curve"):
        common(ITEMS, ASKER, tag + b"".join([*own, *returned[:-1], b"\2" + 32 * b"\xff"]))
    # Answers to another list, or to another asker's request.
    for items, secret in ((ITEMS[:-1], ASKER), (ITEMS[::-1], ASKER), (ITEMS, ANSWERER)):
        with pytest.raises(DataError, match="is not an answer to this request"):
            common(items, secret, answer)


def test_as_it_travels_no_change_is_accepted(answer: bytes) -> None:
    """Points that are left out or change places only seals can notice."""
    key, parts = bytes(32), points(answer[TAG:])
    sealed = seal(key, answer, "reply 1 0")
    for other in (parts[:-1], [*parts[:5], *parts[5:][::-1]]):
        forged = np.concatenate([sealed[:12], np.frombuffer(b"".join(other), np.uint8)])
        with pytest.raises(DataError, match="was changed on its way"):
            unseal(key, forged, "reply 1 0")


# What messages show.


def test_messages_hold_no_item_and_repeat_for_the_same_secret_alone(asked: bytes) -> None:
    answer = reply(OTHERS, asked, ANSWERER)
    for item in (*ITEMS, *OTHERS):
        assert item.encode() not in asked + answer
    assert request(ITEMS, ASKER) == asked
    assert reply(OTHERS, asked, ANSWERER) == answer
    assert len(asked) == TAG + POINT * len(ITEMS)
    assert len(answer) == TAG + POINT * (len(ITEMS) + len(OTHERS))


def test_other_pairs_runs_and_lists_have_no_point_in_common() -> None:
    """Who sees two runs does not see that they are about the same items."""
    seen: list[bytes] = []
    for secret in (ASKER, ANSWERER, b"that of another run"):
        for items in (ITEMS, ITEMS[1:]):
            asked = request(items, secret)
            seen += points(asked[TAG:])
            for key in (b"an answerer's key", b"another one's key"):
                seen += points(reply(ITEMS, asked, key)[TAG:])
    assert len(set(seen)) == len(seen)
    # An answer depends on the request: one that was changed has points of its own.
    other = request(ITEMS[:3], ASKER)
    assert not set(points(reply(OTHERS, other, ANSWERER)[TAG:])) & set(seen)


def test_an_answer_has_its_own_points_in_an_order_that_says_nothing(asked: bytes) -> None:
    """In the order of points, whatever the order of items."""
    answer = reply(OTHERS, asked, ANSWERER)
    own = points(answer[TAG:])[: len(OTHERS)]
    assert own == sorted(own)


def test_a_request_hides_which_point_is_which_item() -> None:
    """The order follows from the secret: that of one run tells nothing about another's."""
    order = [matching._order(ITEMS, k.to_bytes(16), b"") for k in range(300)]
    counts = np.bincount(np.array(order)[:, 0], minlength=len(ITEMS))
    assert counts.min() > 25  # 50 on average
    assert all(sorted(one) == list(range(len(ITEMS))) for one in order)


def test_who_has_one_item_in_common_cannot_claim_the_others_but_by_luck() -> None:
    """H(x) and the point of x, to any power, look like a match: but which point is it?"""
    items, claimed = [f"patient {k}" for k in range(12)], 0
    rng = np.random.default_rng(0)
    for run in range(20):
        secret = bytes([run]) * 16
        message = request(items, secret)
        (_, *rest) = points(message[TAG:])
        guess, own, returned = points(message[TAG:])[0], [], []
        for _ in range(1 + len(rest)):
            server = psi.server.CreateFromKey(b"\0" + rng.bytes(31), True)
            asked = psi.Request(reveal_intersection=True, encrypted_elements=[guess])
            returned += server.ProcessRequest(asked).encrypted_elements
            raw = server.CreateSetupMessage(0.0, 1, items[:1], psi.DataStructure.RAW).raw
            own += raw.encrypted_elements
        forged = message[:TAG] + b"".join(sorted(own) + returned)
        claimed += len(common(items, secret, forged)) > 0
    assert claimed <= 5  # 20/12 on average; all of them if the items' order were known
