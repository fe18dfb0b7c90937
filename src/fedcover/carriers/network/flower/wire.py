"""Orders and replies as Flower's messages, and back.

Flower carries every record and every array of a message by requests of its own; so all arrays of a
message travel as one run of bytes in its head, which says what it is made of. Only what is too long
for one request goes as an array, which Flower cuts into pieces.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.app import Message as FlowerMessage
from numpy.typing import NDArray

from fedcover.carriers.network.messages import Item, Order, Place, Reply
from fedcover.conformal.protocol import Message
from fedcover.errors import DataError

QUERY = "query"  # Flower's message type: the ClientApp's one function
HEAD, BODY, DATA = "head", "body", "data"
LONG = 8 << 20  # bytes
LONGEST = 1 << 22  # characters of a list of contents
MESSAGES = 1 << 16  # in one
MOST_WORDS = 500  # of what a site says it cannot do
DAY = 86_400.0  # seconds that a site may say it worked, at most
TYPES = ("float32", "float64", "int64", "uint8", "uint16", "uint32", "bool")


def order_message(order: Order, node: int, seconds: float) -> FlowerMessage:
    """A message that is dropped if its node does not fetch it in time."""
    told, first = json.dumps([item.place for item in order.told]), order.places[0]
    head = {"job": order.job, "places": json.dumps(order.places), "told": told}
    content = _packed(head, [arrays for _, arrays in order.messages])
    group = f"{first.part} {first.round}"
    return FlowerMessage(content, node, QUERY, ttl=seconds, group_id=group)


def order_of(message: FlowerMessage) -> Order:
    """What has come to a site."""
    head = message.content.config_records[HEAD]
    told, places = _places(head["told"]), _places(head["places"])
    arrays = _unpacked(message.content, len(told) + len(places))
    items = tuple(map(Item, (*told, *places), arrays))
    return Order(str(head["job"]), items[len(told) :], items[: len(told)])


def reply_message(name: str, reply: Reply, order: FlowerMessage) -> FlowerMessage:
    """A site's answer, under its name."""
    head = {
        "site": name,
        "job": reply.job,
        "places": json.dumps(reply.places),
        "answers": len(reply.contents),
        "problem": reply.problem,
        "seconds": reply.seconds,
        "preparing": reply.preparing,
    }
    return FlowerMessage(_packed(head, reply.contents), reply_to=order)


def reply_of(message: FlowerMessage, most: int) -> tuple[str, Reply]:
    """Who answered, and what; a reply that is too big is not even unpacked."""
    if message.has_error():
        raise DataError(message.error.reason or "it failed without a word")
    try:
        head, bodies = message.content.config_records[HEAD], message.content.array_records.values()
        problem, contents = str(head["problem"])[:MOST_WORDS], tuple[Message, ...]()
        size = len(_short(message.content)) + sum(len(a.data) for b in bodies for a in b.values())
        if size > most:
            problem = f"it has {size} bytes, and at most {most} can be right"
        else:
            contents = tuple(_unpacked(message.content, int(str(head["answers"]))))
        seconds = [min(max(0.0, float(str(head[key]))), DAY) for key in ("seconds", "preparing")]
        places = _places(head["places"])
        return str(head["site"]), Reply(str(head["job"]), places, contents, problem, *seconds)
    except Exception as error:  # whatever a node may have put together
        raise DataError(f"its message cannot be read: {type(error).__name__}") from error


def _places(spelt: Any) -> tuple[Place, ...]:
    found = tuple(Place(*place) for place in _json(spelt))
    for place in found:
        if not all(map(isinstance, place, (int | None, str, str, int))):
            raise ValueError("it does not say what it belongs to")
    return found


def _json(spelt: Any) -> Any:
    words = str(spelt)
    if len(words) > LONGEST:
        raise ValueError("one of its lists is too long")
    return json.loads(words)


def _packed(head: Mapping[str, Any], messages: Sequence[Message]) -> RecordDict:
    arrays = [(place, name, a) for place, m in enumerate(messages) for name, a in m.items()]
    contents = [[place, name, str(a.dtype), list(a.shape)] for place, name, a in arrays]
    data = b"".join(np.ascontiguousarray(array).tobytes() for _, _, array in arrays)
    told = ConfigRecord({**head, "contents": json.dumps(contents)})
    if len(data) < LONG:
        told[DATA] = data
        return RecordDict({HEAD: told})
    body = ArrayRecord({DATA: Array(np.frombuffer(data, dtype=np.uint8))})
    return RecordDict({HEAD: told, BODY: body})


def _short(content: RecordDict) -> bytes:
    data = content.config_records[HEAD].get(DATA, b"")
    if not isinstance(data, bytes):
        raise ValueError("its data are not bytes")
    return data


def _unpacked(content: RecordDict, count: int) -> list[dict[str, NDArray[Any]]]:
    """The messages, of which there are so many."""
    data = _short(content)
    if BODY in content.array_records:
        data = content.array_records[BODY][DATA].numpy().tobytes()
    if not 0 <= count <= MESSAGES:
        raise ValueError(f"it cannot have {count} parts")
    messages: list[dict[str, NDArray[Any]]] = [{} for _ in range(count)]
    start = 0
    for place, name, kind, shape in _json(content.config_records[HEAD]["contents"]):
        named = isinstance(name, str) and name.isascii() and name.isprintable() and len(name) < 200
        if kind not in TYPES or not named or not 0 <= place < count:
            raise ValueError(f"{name} is not an array of numbers")
        length = math.prod(int(side) for side in shape)
        if any(side < 0 for side in shape) or length > len(data):
            raise ValueError(f"{name} cannot have the shape that it is said to have")
        array = np.frombuffer(data, np.dtype(kind), length, start).reshape(shape)
        start += array.nbytes
        messages[place][name] = array
    if start != len(data):
        raise ValueError(f"it has {len(data)} bytes where its head says {start}")
    return messages
