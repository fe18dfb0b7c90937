"""A command's notes, on stderr and said once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def notes_held_back() -> Iterator[None]:
    """What is computed here does not say its notes by itself, as it does in Python.

    For the time of one computation alone: sites and coordinators speak by the same logger.
    """
    logger, handler = logging.getLogger("fedcover"), logging.NullHandler()
    logger.addHandler(handler)  # else Python's handler of last resort prints them
    try:
        yield
    finally:
        logger.removeHandler(handler)


def print_notes(notes: Iterable[str]) -> None:
    """One line each."""
    for note in notes:
        print(f"fedcover: note: {note}", file=sys.stderr)
