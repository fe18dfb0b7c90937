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

from fedcover.errors import DataError
from fedcover.flower.wire import order_message, order_of, reply_message, reply_of
from fedcover.parties.messages import Order, Reply


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
concluded = st.dictionaries(names, some, min_size=1, max_size=3)


def same(left: dict, right: dict) -> bool:
    return left.keys() == right.keys() and all(
        (left[k].dtype == right[k].dtype and np.array_equal(left[k], right[k], equal_nan=False))
        or left[k].tobytes() == right[k].tobytes()
        for k in left
    )


@given(messages, st.dictionaries(st.text("ab/ ", min_size=1, max_size=8), concluded, max_size=2))
def test_an_order_arrives_as_it_was_sent(query: dict, conclusions: dict) -> None:
    order = Order("job", "gen/train", "fit", 7, query, conclusions)
    found = order_of(order_message(order, 5, 60.0))
    assert found.place == order.place
    assert found.job == "job"
    assert same(dict(found.query), query)
    assert found.conclusions.keys() == conclusions.keys()
    assert all(same(dict(found.conclusions[k]), conclusions[k]) for k in conclusions)


@given(messages, st.text(max_size=20))
def test_a_reply_arrives_as_it_was_sent(content: dict, problem: str) -> None:
    asked = order_message(Order("job", "fed/train", "fit", 1), 5, 60.0)
    reply = Reply("job", "fed/train", "fit", 1, content, problem)
    name, found = reply_of(reply_message("ada", reply, asked), 1 << 20)
    assert (name, found.place, found.problem) == ("ada", reply.place, problem)
    assert same(dict(found.content), content)


def test_a_reply_that_is_too_big_is_not_unpacked() -> None:
    asked = order_message(Order("job", "fed/train", "fit", 1), 5, 60.0)
    reply = Reply("job", "fed/train", "fit", 1, {"first": np.zeros(10_000)})
    _, found = reply_of(reply_message("ada", reply, asked), 1_000)
    assert found.content == {}
    assert "at most 1000 can be right" in found.problem


@pytest.mark.parametrize(
    "contents",
    [
        '[["", "a", "float32", [1000000000000000000000000000000]]]',
        '[["", "a", "float32", [-1]]]',
        '[["", "a", "(,)f4", [1]]]',
        '[["", "a", "object", [1]]]',
        '[["", 3, "float32", [1]]]',
        '[[["deep"], "a", "float32", [1]]]',
        '[["", "a", "float32", [2]]]',
        "[" * 100_000,
        "3",
    ],
)
def test_contents_that_cannot_be_are_refused(contents: str) -> None:
    asked = order_message(Order("job", "fed/train", "fit", 1), 5, 60.0)
    message = reply_message(
        "ada", Reply("job", "fed/train", "fit", 1, {"a": np.zeros(1, np.float32)}), asked
    )
    message.content.config_records["head"]["contents"] = contents
    with pytest.raises(DataError, match="cannot be read"):
        reply_of(message, 1 << 20)


def test_an_error_and_nonsense_are_sentences() -> None:
    asked = order_message(Order("job", "fed/train", "fit", 1), 5, 60.0)
    with pytest.raises(DataError, match="lost"):
        reply_of(FlowerMessage(Error(code=1, reason="lost"), reply_to=asked), 1_000)
    with pytest.raises(DataError, match="cannot be read"):
        reply_of(FlowerMessage(RecordDict({}), reply_to=asked), 1_000)
