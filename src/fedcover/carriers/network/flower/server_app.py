"""The ServerApp: one job, with settings from ``--run-config``."""

from __future__ import annotations

import logging
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcover.carriers.network.coordinate import coordinate
from fedcover.carriers.network.flower.pace import hurry
from fedcover.carriers.network.flower.settings import assignment_from
from fedcover.carriers.network.flower.transport import FlowerTransport
from fedcover.errors import FedcoverError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Lead the job; the run folder is where ``out`` says."""
    speak()
    hurry()
    try:
        coordinate(assignment_from(context.run_config), FlowerTransport(grid))
    except FedcoverError as error:
        logging.getLogger("fedcover").error("failed: %s", error)
        raise


def speak() -> None:
    """What fedcover has to say goes to standard error, where Flower picks it up."""
    logger = logging.getLogger("fedcover")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("fedcover: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
