"""What parties must agree on before they train together: features and labels, not data.

One party makes the schema from its own folder, all keep the same file, and each shows by a
fingerprint that its own data has it (``docs/deployment.md``).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fedcover.errors import DataError, shown
from fedcover.files import check_regular

if TYPE_CHECKING:
    from torch_geometric.data import Data

Type: TypeAlias = Literal["binary", "number"]
TYPES: tuple[Type, ...] = ("binary", "number")

Kind: TypeAlias = Type | tuple[str, ...]
"""What a column holds: 0 and 1, numbers, or one of these words (its categories, in order)."""

Column: TypeAlias = tuple[str, Kind]


@dataclass(frozen=True)
class Schema:
    """Names and types of the feature columns in their order, and all labels in theirs.

    ``binary`` columns are 0 or 1 at every party; a column of words has its categories for a type,
    and becomes one feature for each. The labels' order is that of the models' outputs.
    """

    features: tuple[Column, ...]
    labels: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(name for name, _ in self.features)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features' names: the columns', and ``column=category`` for words."""
        return tuple(feature_names(self.features))

    @property
    def binary(self) -> bool:
        """Whether all features are 0 or 1."""
        return all(kind != "number" for _, kind in self.features)

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits (SHA-256): equal for equal schemas, and for no others."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The file's text; one schema has one spelling."""
        features = [
            [name, {"category": kind} if isinstance(kind, tuple) else kind]
            for name, kind in self.features
        ]
        content = {"features": features, "labels": self.labels}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))

    def difference(self, other: "Schema") -> str:
        """Say where ``other`` first differs from this one, which is the agreed one; "" if nowhere.

        A binary feature also fits where a number is agreed, and a party need not have every label.
        """
        if difference := self.difference_of_names(other.names):
            return difference
        found = dict(other.features)
        for name, mine in self.features:
            its, column = found[name], f"column {shown(name)}"
            if (mine, its) == ("binary", "number"):
                return f"{column} has other values than 0 and 1, which are agreed"
            if isinstance(mine, tuple) != isinstance(its, tuple):
                return f"{column} holds {_spoken(its)}, where {_spoken(mine)} are agreed"
            for word in its if isinstance(mine, tuple) else ():
                if word not in mine:
                    return f"{column} has {shown(word)}, which is not an agreed category"
        for label in other.labels:
            if label not in self.labels:
                return f"column 'label' has {shown(label)}, which is not among the agreed labels"
        return ""

    def difference_of_names(self, names: Sequence[str]) -> str:
        """Say which column is missing or too many; "" if none. Their order does not matter:
        features are taken in the order of the schema."""
        for place, mine in enumerate(self.names, 1):
            if mine not in names:
                return f"column {shown(mine)} is missing, the agreed feature {place}"
        for its in names:
            if its not in self.names:
                return f"column {shown(its)} is one feature more than agreed"
        return ""


def feature_names(columns: Iterable[Column]) -> list[str]:
    """The names of the features that columns become.

    >>> feature_names([("age", "number"), ("ward", ("north", "south"))])
    ['age', 'ward=north', 'ward=south']
    """
    names = []
    for name, kind in columns:
        names += [f"{name}={word}" for word in kind] if isinstance(kind, tuple) else [name]
    return names


def numeric_features(columns: Iterable[Column]) -> list[bool]:
    """Which features are numbers other than 0 and 1, in the order of :func:`feature_names`."""
    marks = []
    for _, kind in columns:
        marks += [False] * len(kind) if isinstance(kind, tuple) else [kind == "number"]
    return marks


def schema_of(graph: "Data") -> Schema:
    """The schema of a graph that was read from tables, with which later ones are read alike."""
    if "columns" not in graph:
        raise DataError(f"{graph.name} was not read from tables, so that it has no schema.")
    return Schema(tuple(graph.columns), tuple(graph.label_names))


def _spoken(kind: Kind) -> str:
    return "words" if isinstance(kind, tuple) else "numbers"


def read_schema(path: Path) -> Schema:
    """Read and check a schema file."""
    check_regular(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a schema: {_reason(error)}.") from error
    return parse_schema(text, str(path))


def parse_schema(text: str, source: str) -> Schema:
    """The schema that a text spells; errors begin with ``source``."""
    try:
        content: Any = json.loads(text)
        features = tuple((name, _kind(kind)) for name, kind in content["features"])
        labels = content["labels"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{source} is not a schema of fedcover: {_reason(error)}.") from error
    if not isinstance(labels, list):
        raise DataError(f"{source}: labels must be a list.")
    for name, kind in features:
        if kind not in TYPES and not (isinstance(kind, tuple) and kind):
            raise DataError(
                f"{source}: feature {shown(name)} has the type {shown(kind)}; it must be one of "
                f"{', '.join(TYPES)}, or a category with its words."
            )
        if isinstance(kind, tuple) and len(set(kind)) < len(kind):
            raise DataError(f"{source}: feature {shown(name)} has the same category twice.")
    for what, names in (("feature", [name for name, _ in features]), ("label", labels)):
        if not all(isinstance(name, str) for name in names):
            raise DataError(f"{source}: every {what} must have a name.")
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{source} names the {what} {shown(repeated)} twice.")
    if not features or len(labels) < 2:
        raise DataError(f"{source} must have at least one feature and two labels.")
    schema = Schema(features, tuple(labels))
    try:
        schema.to_json().encode()
    except UnicodeEncodeError:  # half of a pair that JSON can spell and UTF-8 cannot
        raise DataError(f"{source} has a name that is not text in Unicode.") from None
    return schema


def _kind(spelt: Any) -> Any:
    """A type as the file spells it: a word, or an object with the words of a category."""
    words = spelt.get("category") if isinstance(spelt, dict) and len(spelt) == 1 else None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return tuple(words)
    return spelt


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {shown(error.args[0])}"
    return str(getattr(error, "strerror", None) or error).rstrip(".")
