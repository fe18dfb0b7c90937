"""What a user can mend: one clear sentence each, and the exit status that goes with it.

A sentence quotes what it is about, but not all of a text without end.
"""

from collections.abc import Sequence
from importlib.util import find_spec

MOST_CHARACTERS = 60  # of a value, so many are shown

MOST_NAMES = 20  # of a list of names, so many are shown

EXTRAS = {
    "privacy": ("opacus", "Opacus"),
    "report": ("matplotlib", "matplotlib"),
    "flower": ("flwr", "Flower"),
    "neighbours": ("private_set_intersection", "openmined.psi"),
}
"""The extras of ``pyproject.toml`` that a command may need: a module of each, and its name."""


class FedcoverError(Exception):
    """A refusal in one sentence; the command line prints it and leaves with ``exit_status``."""

    exit_status = 1


class DataError(FedcoverError, ValueError):
    """The data are not what they must be; the sentence names the file and the place."""


class UsageError(FedcoverError, ValueError):
    """An option or argument is wrong; the sentence names it and what it takes."""

    exit_status = 2


def shown(value: object) -> str:
    """A value as Python spells it, cut off where it is too long.

    >>> shown("word"), shown(7), len(shown("x" * 100))
    ("'word'", '7', 62)
    """
    return repr(_cut(value)) if isinstance(value, str) else _cut(repr(value))


def listed(names: Sequence[str]) -> str:
    """Names with commas, cut off where they are too long or too many.

    >>> listed(["a", "b"])
    'a, b'
    """
    more = f", … ({len(names):,} in all)" if len(names) > MOST_NAMES else ""
    return ", ".join(_cut(name) for name in names[:MOST_NAMES]) + more


def require(extra: str, what: str) -> None:
    """Refuse ``what`` in one sentence, with the command that mends it, if the extra is missing."""
    module, name = EXTRAS[extra]
    if find_spec(module) is None:
        raise UsageError(
            f"{what} needs {name}, which is not installed: pip install 'fedcover[{extra}]'."
        )


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
