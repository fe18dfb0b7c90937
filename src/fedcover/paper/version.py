"""Which code computed a result: a fingerprint of everything that can change a number."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "conformal",
    "experiment",
    "federation",
    "graphs",
    "models",
    "neighbors",
    "personal",
    "privacy",
)
LIBRARIES = ("numpy", "opacus", "pymetis", "scikit-learn", "scipy", "torch", "torch_geometric")
BESIDE = {
    "graphs": ("facts.py", "inspection.py"),
    "experiment": ("__init__.py", "frames.py", "shown.py", "store.py", "summary.py"),
}
"""Files that only lay results out, or speak of a graph before there are any."""


@cache
def code_version() -> str:
    """Twelve hex digits that change with the program and its numerical libraries.

    Comments, docstrings and layout do not count: what is parsed is compared, not what is written.
    """
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if path.name not in BESIDE.get(package, ()):
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(meaning(path.read_text(encoding="utf-8")).encode())
    for library in LIBRARIES:
        digest.update(f"{library}={_version(library)}".encode())
    return digest.hexdigest()[:12]


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:  # an extra that is not installed
        return ""


def meaning(source: str) -> str:
    """A module's syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(part: ast.AST) -> bool:
    return (
        isinstance(part, ast.Expr)
        and isinstance(part.value, ast.Constant)
        and isinstance(part.value.value, str)
    )
