"""What Flower runs: the coordinator's ServerApp leads a job, a site's ClientApp answers one order.

The job's settings come from ``--run-config``, a site's from ``--node-config``: ``site`` is the
folder with nodes and edges; ``work`` (default: the same) gets the ledger, the sets and what is
remembered between messages; ``name`` (default: the folder's) is the site's; ``least-far-ends`` is
what must stand behind a sum of +neighbours at least.
"""

import logging
import os
import sys
from functools import cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcover.carriers.network.coordinate import coordinate
from fedcover.carriers.network.flower.pace import hurry
from fedcover.carriers.network.flower.transport import FlowerTransport
from fedcover.carriers.network.flower.wire import order_of, reply_message
from fedcover.carriers.network.job import assignment_from
from fedcover.carriers.network.member import Member
from fedcover.carriers.network.site_job import MIN_FAR_ENDS
from fedcover.errors import FedcoverError, UsageError

server, client = ServerApp(), ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Lead the job; the run folder is where ``out`` says."""
    logger = logging.getLogger("fedcover")
    if not logger.handlers:  # Flower picks up what is said on standard error
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("fedcover: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    os.umask(0o077)
    hurry()
    try:
        coordinate(assignment_from(context.run_config), FlowerTransport(grid))
    except FedcoverError as error:
        logger.error("failed: %s", error)
        raise


@client.query()
def answer(message: Message, context: Context) -> Message:
    """Hand the order to the site, and send back its reply."""
    settings = ("site", "work", "name", "least-far-ends")
    member = _member(*(str(context.node_config.get(key, "")) for key in settings))
    order = order_of(message)
    return reply_message(member.name, member.answer(order), message)


@cache
def _member(site: str, work: str, name: str, least: str) -> Member:
    """One member a process: where the process stays (``fedcover site run``), so does its graph."""
    if not site:
        raise UsageError("--node-config has no site; it must name the folder with nodes and edges.")
    if least and not (least.isdecimal() and int(least) >= 1):
        raise UsageError(
            f"--node-config has the least-far-ends {least}; it must be a whole number of 1 or more."
        )
    floor = int(least) if least else MIN_FAR_ENDS
    return Member(Path(site), Path(work) if work else None, name or None, floor)
