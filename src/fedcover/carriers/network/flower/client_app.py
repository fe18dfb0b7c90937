"""The ClientApp: a site answers one order. Its folder comes from ``--node-config``.

``site`` is the folder with nodes and edges; ``work`` (default: the same) gets the ledger, the sets
and what is remembered between messages; ``name`` (default: the folder's) is the site's.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcover.carriers.network.flower.wire import order_of, reply_message
from fedcover.carriers.network.member import Member
from fedcover.errors import UsageError

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Hand the order to the site, and send back its reply."""
    member = _member(*(str(context.node_config.get(key, "")) for key in ("site", "work", "name")))
    order = order_of(message)
    return reply_message(member.name, member.answer(order), message)


@cache
def _member(site: str, work: str, name: str) -> Member:
    """One member a process: where the process stays (``fedcover site run``), so does its graph."""
    if not site:
        raise UsageError("--node-config has no site; it must name the folder with nodes and edges.")
    return Member(Path(site), Path(work) if work else None, name or None)
