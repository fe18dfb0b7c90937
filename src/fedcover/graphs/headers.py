"""What columns mean, whatever they are called: case, blanks and common other names."""

from collections.abc import Collection, Sequence

SYNONYMS: dict[str, tuple[str, ...]] = {
    "id": ("id", "node", "node_id"),
    "label": ("label", "class", "y", "target_label"),
    "client": ("client", "party", "site"),
    "split": ("split", "role", "set"),
    "source": ("source", "src", "from", "u"),
    "target": ("target", "dst", "to", "v"),
}
"""The names that a column may have, by what it means."""


def meanings(
    header: Sequence[str], wanted: Collection[str], features: Collection[str] = ()
) -> list[str]:
    """What every column of a header is: one of ``wanted``, or its own name without blanks.

    ``features`` are names that an agreed schema has given to features, which they stay. What is
    wanted may have a name of its own, such as the column of groups.

    >>> meanings([" ID", "Class", "y2"], ("id", "label"))
    ['id', 'label', 'y2']
    """
    known = {
        name: meaning for meaning in wanted for name in SYNONYMS.get(meaning, (meaning.lower(),))
    }
    plain = [name.strip() for name in header]
    return [name if name in features else known.get(name.lower(), name) for name in plain]
