"""The parts of an installation that one can do without, and what to say where one is missing."""

from importlib.util import find_spec

from fedcover.errors import UsageError

EXTRAS = {
    "privacy": ("opacus", "Opacus"),
    "report": ("matplotlib", "matplotlib"),
    "flower": ("flwr", "Flower"),
}
"""The extras of ``pyproject.toml`` that a command may need: a module of each, and its name."""


def require(extra: str, what: str) -> None:
    """Refuse ``what`` in one sentence, with the command that mends it, if the extra is missing."""
    module, name = EXTRAS[extra]
    if find_spec(module) is None:
        raise UsageError(
            f"{what} needs {name}, which is not installed: pip install 'fedcover[{extra}]'."
        )
