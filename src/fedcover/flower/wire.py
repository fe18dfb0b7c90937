"""Orders and replies as Flower's messages, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.app import Message as FlowerMessage

from fedcover.conformal.protocol import Message
from fedcover.errors import DataError
from fedcover.parties.messages import Order, Reply

QUERY = "query"  # Flower's message type: the ClientApp's one function
HEAD, BODY, CONCLUSION = "head", "body", "conclusion:"


def order_message(order: Order, node: int, seconds: float) -> FlowerMessage:
    """A message that is dropped if its node does not fetch it in time."""
    head = ConfigRecord(
        {
            "job": order.job,
            "phase": order.phase,
            "verb": order.verb,
            "round": order.round,
            "number": order.number,
        }
    )
    content: dict[str, Any] = {HEAD: head, BODY: _record(order.query)}
    content |= {f"{CONCLUSION}{name}": _record(m) for name, m in order.conclusions.items()}
    return FlowerMessage(
        RecordDict(content), node, QUERY, ttl=seconds, group_id=f"{order.phase} {order.round}"
    )


def order_of(message: FlowerMessage) -> Order:
    """What has come to a site."""
    content = message.content
    head = content.config_records[HEAD]
    return Order(
        str(head["job"]),
        str(head["phase"]),
        str(head["verb"]),
        int(head["round"]),  # type: ignore[arg-type]
        int(head["number"]),  # type: ignore[arg-type]
        _arrays(content.array_records[BODY]),
        {
            name.removeprefix(CONCLUSION): _arrays(record)
            for name, record in content.array_records.items()
            if name.startswith(CONCLUSION)
        },
    )


def reply_message(name: str, reply: Reply, order: FlowerMessage) -> FlowerMessage:
    """A site's answer, under its name."""
    head = ConfigRecord(
        {
            "site": name,
            "job": reply.job,
            "phase": reply.phase,
            "verb": reply.verb,
            "round": reply.round,
            "problem": reply.problem,
            "seconds": reply.seconds,
            "preparing": reply.preparing,
        }
    )
    return FlowerMessage(RecordDict({HEAD: head, BODY: _record(reply.content)}), reply_to=order)


def reply_of(message: FlowerMessage, most: int) -> tuple[str, Reply]:
    """Who answered, and what; a reply that is too big is not even unpacked."""
    if message.has_error():
        raise DataError(message.error.reason or "it failed without a word")
    try:
        head = message.content.config_records[HEAD]
        body = message.content.array_records[BODY]
        size = sum(len(array.data) for array in body.values())
        site, problem = str(head["site"]), str(head["problem"])
        if size > most:
            body, problem = ArrayRecord(), f"it has {size} bytes, and at most {most} can be right"
        place = (str(head["job"]), str(head["phase"]), str(head["verb"]), int(head["round"]))  # type: ignore[arg-type]
        times = [max(float(head[key]), 0.0) for key in ("seconds", "preparing")]  # type: ignore[arg-type]
        return site, Reply(*place, _arrays(body), problem, *times)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"its message cannot be read: {error}") from error


def _record(message: Message) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in message.items()})


def _arrays(record: Mapping[str, Array]) -> Message:
    return {name: array.numpy() for name, array in record.items()}
