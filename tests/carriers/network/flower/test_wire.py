"""Orders and replies survive the trip as Flower's messages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from flwr.app import Error, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedcover.carriers.network.flower.wire import order_message, order_of, reply_message, reply_of
from fedcover.carriers.network.messages import Item, Order, Place, Reply
from fedcover.errors import DataError


@pytest.fixture(scope="module", autouse=True)
def in_a_run() -> Iterator[None]:
    """Flower's messages know which run they belong to."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 2, 3
    yield
    TaskIdentity._task_id = TaskIdentity._run_id = TaskIdentity._node_id = None


kinds = st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_])
some = kinds.flatmap(lambda kind: arrays(kind, array_shapes(min_dims=0, min_side=0, max_side=4)))
names = st.text("abc.019", min_size=1, max_size=6)
messages = st.dictionaries(names, some, max_size=3)


def same(left: dict, right: dict) -> bool:
    return left.keys() == right.keys() and all(
        (left[k].dtype == right[k].dtype and np.array_equal(left[k], right[k], equal_nan=False))
        or left[k].tobytes() == right[k].tobytes()
        for k in left
    )


places = st.builds(
    Place, st.none() | st.integers(0, 9), st.text("ab/ ", max_size=8), names, st.integers(0, 99)
)
items = st.lists(st.builds(Item, places, messages), min_size=1, max_size=3).map(tuple)
told_items = st.lists(st.builds(Item, places, messages), max_size=3).map(tuple)
PLACE = Place(0, "fed/shared", "train", 1)
ASKED = Order("job", (Item(PLACE),))


@given(items, told_items)
def test_an_order_arrives_as_it_was_sent(asked: tuple[Item, ...], told: tuple[Item, ...]) -> None:
    order = Order("job", asked, told)
    found = order_of(order_message(order, 5, 60.0))
    assert (found.job, found.places) == ("job", order.places)
    for left, right in zip(found.messages, order.messages, strict=True):
        assert left[0] == right[0]
        assert same(dict(left[1]), dict(right[1]))


@given(st.lists(messages, max_size=3).map(tuple), st.text(max_size=20))
def test_a_reply_arrives_as_it_was_sent(contents: tuple[dict, ...], problem: str) -> None:
    asked = order_message(ASKED, 5, 60.0)
    reply = Reply("job", (PLACE,) * len(contents), contents, problem)
    name, found = reply_of(reply_message("ada", reply, asked), 1 << 20)
    assert (name, found.places, found.problem) == ("ada", reply.places, problem)
    assert all(map(same, found.contents, contents))
    assert len(found.contents) == len(contents)


def test_a_reply_that_is_too_big_is_not_unpacked() -> None:
    asked = order_message(ASKED, 5, 60.0)
    reply = Reply.to(ASKED, ({"first": np.zeros(10_000)},))
    _, found = reply_of(reply_message("ada", reply, asked), 1_000)
    assert found.contents == ()
    assert "at most 1000 can be right" in found.problem


@pytest.mark.parametrize(
    "contents",
    [
        '[[0, "a", "float32", [1000000000000000000000000000000]]]',
        '[[0, "a", "float32", [-1]]]',
        '[[0, "a", "(,)f4", [1]]]',
        '[[0, "a", "object", [1]]]',
        '[[0, "\\ud800", "float32", [1]]]',
        '[[0, "a\\u2028b", "float32", [1]]]',
        '[[0, 3, "float32", [1]]]',
        '[[["deep"], "a", "float32", [1]]]',
        '[[1, "a", "float32", [1]]]',
        '[[-1, "a", "float32", [1]]]',
        '[[0, "a", "float32", [2]]]',
        "[" * 100_000,
        "3",
    ],
)
def test_contents_that_cannot_be_are_refused(contents: str) -> None:
    asked = order_message(ASKED, 5, 60.0)
    message = reply_message("ada", Reply.to(ASKED, ({"a": np.zeros(1, np.float32)},)), asked)
    message.content.config_records["head"]["contents"] = contents
    with pytest.raises(DataError, match="cannot be read"):
        reply_of(message, 1 << 20)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("places", '[[0, "a", "b"]]'),
        ("places", '[[0, "a", "b", "c"]]'),
        ("places", '[["0", "a", "b", 0]]'),
        ("places", "[[0, 1, 2, 3]]"),
        ("answers", -1),
        ("answers", 10**9),
        ("answers", "many"),
    ],
)
def test_a_head_that_cannot_be_is_refused(key: str, value: object) -> None:
    asked = order_message(ASKED, 5, 60.0)
    message = reply_message("ada", Reply.to(ASKED, ({},)), asked)
    message.content.config_records["head"][key] = value
    with pytest.raises(DataError, match="cannot be read"):
        reply_of(message, 1 << 20)


def test_an_error_and_nonsense_are_sentences() -> None:
    asked = order_message(ASKED, 5, 60.0)
    with pytest.raises(DataError, match="lost"):
        reply_of(FlowerMessage(Error(code=1, reason="lost"), reply_to=asked), 1_000)
    with pytest.raises(DataError, match="cannot be read"):
        reply_of(FlowerMessage(RecordDict({}), reply_to=asked), 1_000)
