"""What columns mean, whatever they are called: case, blanks, hyphens and common other names."""

import re
from collections.abc import Collection, Sequence

SYNONYMS: dict[str, tuple[str, ...]] = {
    "id": ("id", "node", "node_id"),
    "label": ("label", "class", "y", "target_label"),
    "client": ("client", "party", "site"),
    "split": ("split", "role", "set"),
    "source": ("source", "src", "from", "u", "source_id"),
    "target": ("target", "dst", "to", "v", "target_id"),
}
"""The names that a column may have, by what it means."""

_INDEX = re.compile(r"|Unnamed: [0-9]+|__index_level_[0-9]+__")


def meanings(
    header: Sequence[str], wanted: Collection[str], features: Collection[str] = ()
) -> list[str]:
    """What every column of a header is: one of ``wanted``, or its own name without blanks.

    ``features`` are names that an agreed schema has given to features, which they stay. What is
    wanted may have a name of its own, such as the column of groups.

    >>> meanings([" Node ID", "Class", "y 2"], ("id", "label"))
    ['id', 'label', 'y 2']
    """
    known = {_folded(name): meaning for meaning in wanted for name in names_of(meaning)}
    plain = [name.strip() for name in header]
    return [name if name in features else known.get(_folded(name), name) for name in plain]


def is_index(name: str) -> bool:
    """Whether a name is one that pandas gives to the rows' numbers when it writes them out.

    >>> is_index("Unnamed: 0"), is_index("__index_level_0__"), is_index("index")
    (True, True, False)
    """
    return _INDEX.fullmatch(name) is not None


def names_of(meaning: str) -> tuple[str, ...]:
    """The names that a column of this meaning may have, its own first."""
    return SYNONYMS.get(meaning, (meaning,))


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().lower())
