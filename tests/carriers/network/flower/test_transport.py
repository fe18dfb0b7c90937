"""How replies find their sites, with a grid that does what a test says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Error
from flwr.app import Message as FlowerMessage
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from fedcover.carriers.network.flower.transport import FlowerTransport
from fedcover.carriers.network.flower.wire import order_of, reply_message
from fedcover.carriers.network.messages import Item, Order, Place, Reply


@pytest.fixture(autouse=True)
def in_a_run() -> Iterator[None]:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 2, 3
    yield
    TaskIdentity._task_id = TaskIdentity._run_id = TaskIdentity._node_id = None


def asking(job: str, round_: int) -> Order:
    return Order(job, (Item(Place(0, "fed/shared", "train", round_)),))


class Grid:
    """Nodes 1, 2, … that answer under these names; ``registered``: what their keys say."""

    def __init__(self, *names: str, registered: Iterable[str] = ()) -> None:
        self.names = dict(enumerate(names, 1))
        self.registered = dict(enumerate(registered, 1))
        self.waiting: dict[str, FlowerMessage] = {}
        self.gone: set[str] = set()
        self.behind: set[str] = set()

    def get_nodes(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(node_id=node, name=self.registered.get(node, "")) for node in self.names
        ]

    def get_node_ids(self) -> list[int]:
        return list(self.names)

    def push_messages(self, messages: Iterable[FlowerMessage]) -> list[str]:
        sent = []
        for k, message in enumerate(messages):
            number = f"{len(self.waiting)}-{k}-{np.random.default_rng().integers(1 << 60)}"
            message.metadata.__dict__["_message_id"] = number
            self.waiting[number] = message
            sent.append(number)
        return sent

    def pull_messages(self, numbers: Iterable[str]) -> list[FlowerMessage]:
        replies = []
        for number in list(numbers):
            asked = self.waiting.pop(number, None)
            if asked is None:
                continue
            name, order = self.names[asked.metadata.dst_node_id], order_of(asked)
            if name in self.gone:
                lost = Error(code=ErrorCode.NODE_UNAVAILABLE, reason="gone")
                replies.append(FlowerMessage(lost, reply_to=asked))
                continue
            reply = Reply.to(order, ({"x": np.zeros(1)},))
            if name in self.behind:
                reply = Reply.to(asking(order.job, order.places[0].round - 1))
            answer = reply_message(name, reply, asked)
            answer.metadata.__dict__["_src_node_id"] = asked.metadata.dst_node_id
            replies.append(answer)
        return replies


HELLO = Order("ab12", (Item(Place(None, "data/hello", "hello", 0)),))


def greeted(grid: Grid) -> FlowerTransport:
    transport = FlowerTransport(grid)
    assert set(transport.greet(HELLO, len(grid.names), 5.0)) == set(grid.names.values())
    return transport


def orders(round_: int, *names: str) -> dict[str, Order]:
    return {name: asking("ab12", round_) for name in names}


def test_replies_that_came_together_are_all_heard() -> None:
    transport = greeted(Grid("a", "b", "c"))
    first = transport.exchange(orders(0, "a", "b", "c"), 5.0)
    heard = [next(first)[0]]
    first.close()  # the round is over after one reply
    later = transport.exchange(orders(1, "a", "b", "c"), 5.0)
    found = [next(later) for _ in range(5)]
    first = [name for name, r in found if r and r.places[0].round == 0]
    assert sorted([*heard, *first]) == ["a", "b", "c"]


def test_a_node_that_is_gone_is_said_to_be() -> None:
    grid = Grid("a", "b")
    transport = greeted(grid)
    grid.gone = {"b"}
    found = dict(next_two(transport.exchange(orders(0, "a", "b"), 5.0)))
    assert found["b"] is None
    assert found["a"] is not None


def test_a_reply_of_another_round_is_a_problem_of_its_site() -> None:
    grid = Grid("a", "b")
    transport = greeted(grid)
    grid.behind = {"b"}
    found = dict(next_two(transport.exchange(orders(3, "a", "b"), 5.0)))
    assert found["b"].problem == "it is of another round."
    assert not found["a"].problem


def test_a_node_cannot_speak_for_another() -> None:
    twice = FlowerTransport(Grid("a", "a"))
    assert set(twice.greet(HELLO, 2, 1.0)) == {"a"}
    liar = FlowerTransport(Grid("a", "a", registered=("b", "a")))
    assert set(liar.greet(HELLO, 2, 1.0)) == {"a"}
    assert liar._node == {"a": 2}


def next_two(found: Iterator) -> list:
    return [next(found), next(found)]
