"""How a server and its clients talk: queries down, replies up, arrays only.

A federated statistic is two short functions. The *client* answers one query from what it holds and
keeps nothing between queries. The *server* is a generator: it yields a query, is sent the replies
of all clients, and returns its value in the end. Neither knows how messages travel:
:func:`converse` carries them within one process, a network transport between machines.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Message = Mapping[str, NDArray[Any]]
Direction = Literal["down", "up"]
Listener = Callable[[Direction, int, str, Message], None]
"""Called as ``on_message(direction, client_index, kind, message)``; "up" leaves a client."""

Local = TypeVar("Local")
Result = TypeVar("Result")
Server = Generator[Message, Sequence[Message], Result]
Client = Callable[[Local, Message], Message]


def converse(
    server: Server[Result],
    client: Client[Local],
    local_data: Sequence[Local],
    *,
    kind: str = "",
    on_message: Listener | None = None,
) -> Result:
    """Drive ``server`` against every client in this process and return the server's value.

    ``local_data[k]`` is what client k holds; it is given to ``client`` and to nobody else. Every
    message is reported to ``on_message`` (a ledger, say) under the name ``kind``.
    """
    replies: Any = None  # the talk begins
    while True:
        # The clients run outside this try: only the server's own StopIteration ends the talk.
        try:
            query = server.send(replies)
        except StopIteration as stop:
            value: Result = stop.value
            return value
        replies = []
        for index, local in enumerate(local_data):
            reply = client(local, query)
            if on_message is not None:
                on_message("down", index, kind, query)
                on_message("up", index, kind, reply)
            replies.append(reply)


def side_by_side(servers: Sequence[Server[Result]]) -> Server[list[Result]]:
    """Several talks in as many rounds as the longest takes: one message carries all their queries.

    The array ``asked`` names the talks that go on; the arrays of talk i are called ``i.name``.
    """
    values: dict[int, Result] = {}
    sent: dict[int, Any] = dict.fromkeys(range(len(servers)))  # by talk: the replies to it
    while sent:
        merged: dict[str, NDArray[Any]] = {}
        for talk, own in sent.items():
            try:
                merged |= _prefixed(talk, servers[talk].send(own))
            except StopIteration as stop:
                values[talk] = stop.value
        asked = [talk for talk in sent if talk not in values]
        if not asked:
            break
        replies = yield {"asked": np.array(asked), **merged}
        answers = [parts(reply, asked) for reply in replies]
        sent = {talk: [answer[talk] for answer in answers] for talk in asked}
    return [values[talk] for talk in range(len(servers))]


def answer_each(client: Client[Local], held: Mapping[int, Local], query: Message) -> Message:
    """A client's reply to :func:`side_by_side`: to each talk that it holds something for."""
    asked = [talk for talk in query["asked"].tolist() if talk in held]
    reply: dict[str, NDArray[Any]] = {}
    for talk, own in parts(query, asked).items():
        reply |= _prefixed(talk, client(held[talk], own))
    return reply


def parts(message: Message, talks: Iterable[int]) -> Mapping[int, Message]:
    """The arrays of each of these talks, by their own names; all talks in one look at a message."""
    found: dict[int, dict[str, NDArray[Any]]] = {talk: {} for talk in talks}
    by_start = {str(talk): own for talk, own in found.items()}
    for key, array in message.items():
        start, dot, name = key.partition(".")
        if dot and start in by_start:
            by_start[start][name] = array
    return found


def _prefixed(talk: int, message: Message) -> Message:
    return {f"{talk}.{name}": array for name, array in message.items()}


def text(words: str) -> NDArray[np.uint8]:
    """Words as an array of a message."""
    return np.frombuffer(words.encode(), dtype=np.uint8)


def words(array: NDArray[Any]) -> str:
    """The words of :func:`text`."""
    return np.asarray(array, dtype=np.uint8).tobytes().decode()


def message_bytes(message: Message) -> int:
    """Payload of a message in bytes: its arrays, without names or framing."""
    return sum(array.nbytes for array in message.values())
