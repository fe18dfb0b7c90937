import numpy as np
import pytest

from fedcover.conformal import converse, message_bytes


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
