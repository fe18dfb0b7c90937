"""Orders and replies as Flower's messages, and back.

Flower carries every record and every array of a message by requests of its own; so all arrays of a
message travel as one run of bytes in its head, which says what it is made of. Only what is too long
for one request goes as an array, which Flower cuts into pieces.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.app import Message as FlowerMessage
from numpy.typing import NDArray

from fedcover.conformal.protocol import Message
from fedcover.errors import DataError
from fedcover.parties.messages import Order, Reply

QUERY = "query"  # Flower's message type: the ClientApp's one function
HEAD, BODY, DATA = "head", "body", "data"
LONG = 8 << 20  # bytes
LONGEST = 1 << 20  # characters of a list of contents
TYPES = ("float32", "float64", "int64", "uint8", "uint32", "bool")


def order_message(order: Order, node: int, seconds: float) -> FlowerMessage:
    """A message that is dropped if its node does not fetch it in time."""
    head = {
        "job": order.job,
        "phase": order.phase,
        "verb": order.verb,
        "round": order.round,
    }
    content = _packed(head, {"": order.query, **order.conclusions})
    group = f"{order.phase} {order.round}"
    return FlowerMessage(content, node, QUERY, ttl=seconds, group_id=group)


def order_of(message: FlowerMessage) -> Order:
    """What has come to a site."""
    head = message.content.config_records[HEAD]
    parts = _unpacked(message.content)
    query = parts.pop("", {})
    return Order(
        str(head["job"]),
        str(head["phase"]),
        str(head["verb"]),
        int(str(head["round"])),
        query,
        parts,
    )


def reply_message(name: str, reply: Reply, order: FlowerMessage) -> FlowerMessage:
    """A site's answer, under its name."""
    head = {
        "site": name,
        "job": reply.job,
        "phase": reply.phase,
        "verb": reply.verb,
        "round": reply.round,
        "problem": reply.problem,
        "seconds": reply.seconds,
        "preparing": reply.preparing,
    }
    return FlowerMessage(_packed(head, {"": reply.content}), reply_to=order)


def reply_of(message: FlowerMessage, most: int) -> tuple[str, Reply]:
    """Who answered, and what; a reply that is too big is not even unpacked."""
    if message.has_error():
        raise DataError(message.error.reason or "it failed without a word")
    try:
        head = message.content.config_records[HEAD]
        size = _size(message.content)
        problem = str(head["problem"])
        content: Message = {}
        if size > most:
            problem = f"it has {size} bytes, and at most {most} can be right"
        else:
            content = _unpacked(message.content).get("", {})
        words = [str(head[key]) for key in ("job", "phase", "verb")]
        seconds, preparing = (max(float(str(head[k])), 0.0) for k in ("seconds", "preparing"))
        round_ = int(str(head["round"]))
        reply = Reply(words[0], words[1], words[2], round_, content, problem, seconds, preparing)
        return str(head["site"]), reply
    except Exception as error:  # whatever a node may have put together
        raise DataError(f"its message cannot be read: {type(error).__name__}") from error


def _packed(head: Mapping[str, Any], parts: Mapping[str, Message]) -> RecordDict:
    arrays = [(part, name, array) for part, m in parts.items() for name, array in m.items()]
    contents = [[part, name, str(a.dtype), list(a.shape)] for part, name, a in arrays]
    data = b"".join(np.ascontiguousarray(array).tobytes() for _, _, array in arrays)
    told = ConfigRecord({**head, "contents": json.dumps(contents)})
    if len(data) < LONG:
        told[DATA] = data
        return RecordDict({HEAD: told})
    body = ArrayRecord({DATA: Array(np.frombuffer(data, dtype=np.uint8))})
    return RecordDict({HEAD: told, BODY: body})


def _size(content: RecordDict) -> int:
    bodies = content.array_records.values()
    return len(_short(content)) + sum(len(a.data) for body in bodies for a in body.values())


def _short(content: RecordDict) -> bytes:
    data = content.config_records[HEAD].get(DATA, b"")
    if not isinstance(data, bytes):
        raise ValueError("its data are not bytes")
    return data


def _unpacked(content: RecordDict) -> dict[str, dict[str, NDArray[Any]]]:
    data = _short(content)
    if BODY in content.array_records:
        data = content.array_records[BODY][DATA].numpy().tobytes()
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    start = 0
    told = str(content.config_records[HEAD]["contents"])
    if len(told) > LONGEST:
        raise ValueError("its list of contents is too long")
    for part, name, kind, shape in json.loads(told):
        if kind not in TYPES or not isinstance(part, str) or not isinstance(name, str):
            raise ValueError(f"{name} is not an array of numbers")
        count = math.prod(int(length) for length in shape)
        if any(length < 0 for length in shape) or count > len(data):
            raise ValueError(f"{name} cannot have the shape that it is said to have")
        array = np.frombuffer(data, np.dtype(kind), count, start).reshape(shape)
        start += array.nbytes
        parts.setdefault(part, {})[name] = array
    if start != len(data):
        raise ValueError(f"it has {len(data)} bytes where its head says {start}")
    return parts
