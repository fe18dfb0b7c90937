"""What parties must agree on before they train together: features and labels, not data.

One party makes the schema from its own folder, all keep the same file, and each shows by a
fingerprint that its own data has it (``docs/deployment.md``).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from fedcover.errors import DataError

Type = Literal["binary", "number"]
TYPES: tuple[Type, ...] = ("binary", "number")


@dataclass(frozen=True)
class Schema:
    """Names and types of the features in their order, and all labels in theirs.

    ``binary`` features are 0 or 1 at every party. The labels' order is that of the models' outputs.
    """

    features: tuple[tuple[str, Type], ...]
    labels: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(name for name, _ in self.features)

    @property
    def binary(self) -> bool:
        """Whether all features are 0 or 1."""
        return all(kind == "binary" for _, kind in self.features)

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits (SHA-256): equal for equal schemas, and for no others."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The file's text; one schema has one spelling."""
        content = {
            "features": [list(feature) for feature in self.features],
            "labels": list(self.labels),
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))

    def difference(self, other: Schema) -> str:
        """Say where ``other`` first differs from this one, which is the agreed one; "" if nowhere.

        A binary feature also fits where a number is agreed, and a party need not have every label.
        """
        pairs = zip_longest(self.features, other.features)
        for place, (mine, its) in enumerate(pairs, 1):
            if mine is None:
                return f"column {its[0]!r} is one feature more than agreed"
            if its is None:
                return f"column {mine[0]!r} is missing, the agreed feature {place}"
            if mine[0] != its[0]:
                return f"column {its[0]!r} is feature {place}, where column {mine[0]!r} is agreed"
            if (mine[1], its[1]) == ("binary", "number"):
                return f"column {mine[0]!r} has other values than 0 and 1, which are agreed"
        for label in other.labels:
            if label not in self.labels:
                return f"column 'label' has {label!r}, which is not among the agreed labels"
        return ""


def read_schema(path: Path) -> Schema:
    """Read and check a schema file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a schema: {_reason(error)}.") from error
    return parse_schema(text, str(path))


def parse_schema(text: str, source: str) -> Schema:
    """The schema that a text spells; errors begin with ``source``."""
    try:
        content: Any = json.loads(text)
        features = tuple((str(name), kind) for name, kind in content["features"])
        labels = tuple(content["labels"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{source} is not a schema of fedcover: {_reason(error)}.") from error
    for name, kind in features:
        if kind not in TYPES:
            raise DataError(
                f"{source}: feature {name!r} has the type {kind!r}; it must be one of "
                f"{', '.join(TYPES)}."
            )
    for what, names in (("feature", [name for name, _ in features]), ("label", labels)):
        if not all(isinstance(name, str) for name in names):
            raise DataError(f"{source}: every {what} must have a name.")
        if len(set(names)) < len(names):
            repeated = next(name for i, name in enumerate(names) if name in names[:i])
            raise DataError(f"{source} names the {what} {repeated!r} twice.")
    if not features or len(labels) < 2:
        raise DataError(f"{source} must have at least one feature and two labels.")
    return Schema(features, labels)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    return str(error).rstrip(".")
