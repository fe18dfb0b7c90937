"""A party's SuperNode that stays warm: one process with Flower's node and the site's data.

Flower starts a new process for each message, which takes seconds to import what it needs and to
read the site's graph again. Here Flower's own ``flower-supernode`` runs unchanged, told to leave
the ClientApp to someone else (``--isolation process``), and a thread of the same process takes
that part: it asks the node for work and answers with the ClientApp that is *installed*.
Code that comes with a run is never executed.

Where this reaches into Flower it is written for the versions that ``pyproject.toml`` allows.
"""

import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging import getLogger
from typing import Any

from fedcover.carriers.network.flower import HOST, QUIET, wait_for
from fedcover.carriers.network.flower.pace import NodePace, hurry_node
from fedcover.errors import DataError

RETURNING, PAUSE = 100.0, 5.0  # seconds: how long a site tries to be let in, and how often
BEGAN = "FEDCOVER_SITE_BEGAN"  # when it first tried, which a new try must know
HEARTBEAT = 10.0  # seconds after which Flower is told that an order is still being worked on
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"

_log = getLogger(__name__)


def run_node(arguments: Sequence[str], port: int, threads: int) -> None:
    """Run ``flower-supernode`` with these arguments until it is stopped; node and site talk to
    each other on a port of this host. The site trains with so many threads, and only their owner
    can read the files that it writes.

    A SuperLink takes a node that was killed for alive until its last heartbeat is a minute old, and
    lets nobody else in with its key: a site that comes back tries again for a while.
    """
    import torch

    os.umask(0o077)
    torch.set_num_threads(threads)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from flwr.supernode.cli import flower_supernode

    secret = secrets.token_bytes(32)
    if BEGAN in os.environ:
        time.sleep(PAUSE)
    began = float(os.environ.setdefault(BEGAN, str(time.time())))
    pace = hurry_node()
    threading.Thread(target=_work, args=(port, secret, pace), daemon=True).start()
    with tempfile.NamedTemporaryFile(prefix="fedcover-") as file:  # readable by its owner alone
        file.write(secret)
        file.flush()
        sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
        sys.argv += ["--host", HOST, "--port", str(port), "--superexec-auth-secret-file", file.name]
        try:
            flower_supernode()
        except SystemExit as end:
            if not end.code or time.time() - began > RETURNING:
                raise
            _log.warning("not let in; trying again in %g s", PAUSE)
    os.execv(sys.executable, sys.orig_argv)  # at once: Flower ends this process in a moment


def _work(port: int, secret: bytes, pace: NodePace) -> None:
    """Answer one order after another, whenever the node says that one is there."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

    address = f"{HOST}:{port}"
    if not wait_for(port):
        raise DataError(f"Flower's node did not start on port {port}.")
    auth = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={_ACQUIRE})
    client = _client(address, auth)
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while True:
        pace.order.wait()
        pace.order.clear()
        try:
            # There may be more than one: an order of which the coordinator died while it was
            # fetched is still there when the next one comes.
            while (found := client.AcquireTask(request)).HasField("task") and found.token:
                _answer(address, found.token)
                pace.reply.set()
        except Exception as error:  # whatever went wrong with one order, the next may be fine
            _log.warning("an order could not be answered: %s", error)
        pace.reply.set()


def _answer(address: str, token: str) -> None:
    """Fetch one order, answer it, and hand the reply back to the node."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode, SubStatus
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supernode.runtime import run_clientapp as task

    from fedcover.carriers.network.flower.apps import client as app

    client = _client(address, RuntimeTokenHttpInterceptor(token))
    try:
        with _heartbeat(client):
            message, context, _, _ = task.pull_task_input(client)
            status, details = SubStatus.COMPLETED, ""
            try:
                reply = app(message=message, context=context)
            except Exception as error:  # the node lives on
                # The coordinator is told its kind alone: its words may hold data.
                status, details = SubStatus.FAILED, type(error).__name__
                code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
                reply = Message(Error(code=code, reason=details), reply_to=message)
                _log.exception("an order failed")
            task.push_message(client, reply, context)
            task.push_task_output(client, context, status, details)
    finally:
        client.close()


def _client(address: str, interceptor: Any) -> Any:
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # it never leaves this process
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="fedcover"), interceptor],
        retry_invoker=make_simple_http_retry_invoker(),
    )


@contextmanager
def _heartbeat(client: Any) -> Iterator[None]:
    """Tell Flower now and then that the order is not forgotten."""
    from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT):
            try:
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except Exception as error:  # the order goes on; if Flower gave it up, so be it
                _log.warning("no heartbeat: %s", error)

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        done.set()
