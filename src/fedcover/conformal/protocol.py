"""How a server and its clients talk: queries down, replies up, arrays only.

A federated statistic is two short functions. The *client* function answers one query from what the
client holds; it keeps nothing between queries. The *server* is a generator: it yields a query, is
sent the replies of all clients, and returns its value in the end. Neither knows how messages
travel: :func:`converse` carries them within one process, and a network transport drives the same
pair with real messages.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, TypeVar

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
    query = _advance(server, None)
    while not isinstance(query, _Finished):
        replies = []
        for index, local in enumerate(local_data):
            reply = client(local, query)
            if on_message is not None:
                on_message("down", index, kind, query)
                on_message("up", index, kind, reply)
            replies.append(reply)
        query = _advance(server, replies)
    value: Result = query.value
    return value


def message_bytes(message: Message) -> int:
    """Payload of a message in bytes: its arrays, without names or framing."""
    return sum(array.nbytes for array in message.values())


class _Finished:
    """The server's value, told apart from a query by its type."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _advance(server: Server[Any], replies: Sequence[Message] | None) -> Message | _Finished:
    # Only the server's own StopIteration may end the talk, so the clients run outside this try.
    try:
        return next(server) if replies is None else server.send(replies)
    except StopIteration as stop:
        return _Finished(stop.value)
