import numpy as np
import pytest

from fedcover.conformal import converse, message_bytes
from fedcover.conformal.protocol import answer_each, parts, side_by_side


def total_client(local, query):
    return {"sum": np.array([local * query["factor"][0]])}


def total_server():
    first = yield {"factor": np.array([1])}
    second = yield {"factor": np.array([10])}
    return [int(reply["sum"][0]) for reply in (*first, *second)]


def test_converse_carries_queries_and_replies_in_client_order():
    assert converse(total_server(), total_client, [1, 2, 3]) == [1, 2, 3, 10, 20, 30]


def test_listener_sees_every_message_once():
    heard = []
    converse(
        total_server(),
        total_client,
        [7, 8],
        kind="total",
        on_message=lambda direction, client, kind, message: heard.append(
            (direction, client, kind, {name: int(a[0]) for name, a in message.items()})
        ),
    )
    assert heard == [
        ("down", 0, "total", {"factor": 1}),
        ("up", 0, "total", {"sum": 7}),
        ("down", 1, "total", {"factor": 1}),
        ("up", 1, "total", {"sum": 8}),
        ("down", 0, "total", {"factor": 10}),
        ("up", 0, "total", {"sum": 70}),
        ("down", 1, "total", {"factor": 10}),
        ("up", 1, "total", {"sum": 80}),
    ]


def test_server_without_questions_returns_at_once():
    def silent():
        return 5
        yield {}

    assert converse(silent(), total_client, [1]) == 5


def test_a_clients_stop_iteration_does_not_end_the_talk():
    def broken(local, query):
        raise StopIteration("from the client")

    with pytest.raises(StopIteration, match="from the client"):
        converse(total_server(), broken, [1])


def test_message_bytes_counts_payload():
    message = {"a": np.zeros(256, np.int64), "b": np.zeros((3, 2), np.float32)}
    assert message_bytes(message) == 2048 + 24
    assert message_bytes({}) == 0


class Watched(dict):
    """A message that counts how often its names are gone through."""

    passes = 0

    def items(self):
        self.passes += 1
        return super().items()

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def test_side_by_side_gives_each_talk_its_own_in_as_many_rounds_as_the_longest():
    def once():
        replies = yield {"factor": np.array([100])}
        return [int(reply["sum"][0]) for reply in replies]

    heard = []
    value = converse(
        side_by_side([total_server(), once(), total_server()]),
        lambda local, query: answer_each(total_client, dict(enumerate(local)), query),
        [(1, 2, 3), (4, 5, 6)],
        on_message=lambda way, client, _kind, message: heard.append((way, client, [*message])),
    )
    assert value == [[1, 4, 10, 40], [200, 500], [3, 6, 30, 60]]
    assert heard[0] == ("down", 0, ["asked", "0.factor", "1.factor", "2.factor"])
    assert heard[1] == ("up", 0, ["0.sum", "1.sum", "2.sum"])
    assert heard[6] == ("down", 1, ["asked", "0.factor", "2.factor"])
    assert heard[7] == ("up", 1, ["0.sum", "2.sum"])


def test_parts_by_hand():
    message = {"asked": 0, "1.a": 1, "11.a": 2, "1.b.c": 3, "01.a": 4, "1": 5, "x.a": 6}
    assert parts(message, [1, 11, 2]) == {1: {"a": 1, "b.c": 3}, 11: {"a": 2}, 2: {}}


def test_a_message_of_many_talks_is_gone_through_once():
    """Once for each talk would make calibration by group quadratic in the groups."""
    talks = 50
    server = side_by_side([total_server() for _ in range(talks)])
    query = Watched(next(server))
    reply = Watched(answer_each(total_client, dict(enumerate(range(talks))), query))
    assert query.passes == 1
    server.send([reply])
    assert reply.passes == 1
