"""Which code computed a result: a fingerprint of everything that can change a number."""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CELL = "fedcover.paper.rows"  # the module that computes a cell
BESIDE = ("fedcover/__init__.py", "fedcover/report/")
"""What imports lead to and no cell is computed with: the release's number, and the page, which is
imported when a run is saved. A test computes a cell without them."""
LIBRARIES = ("numpy", "opacus", "pymetis", "scikit-learn", "scipy", "torch", "torch_geometric")


@cache
def code_version() -> str:
    """Twelve hex digits that change with the program and its numerical libraries."""
    digest = hashlib.sha256(fingerprint(Path(__file__).parents[2], CELL, BESIDE).encode())
    for library in LIBRARIES:
        try:
            number = version(library)
        except PackageNotFoundError:  # an extra that is not installed
            number = ""
        digest.update(f"{library}={number}".encode())
    return digest.hexdigest()[:12]


def fingerprint(root: Path, module: str, beside: tuple[str, ...] = ()) -> str:
    """A hash of a module and of all that it imports below ``root``.

    Comments, docstrings and layout do not count: what is executed is compared, not the text.
    """
    digest = hashlib.sha256()
    for name, tree in sorted(sources(root, module, beside).items()):
        digest.update(f"{name}{ast.dump(tree)}".encode())
    return digest.hexdigest()


def sources(root: Path, module: str, beside: tuple[str, ...] = ()) -> dict[str, ast.Module]:
    """The files below ``root`` that importing and using a module executes, by their paths; those
    whose paths begin with one of ``beside`` are left out.

    Imports inside functions count: methods load their algorithms that way.
    """
    found: dict[str, ast.Module] = {}
    pending = [module]
    while pending:
        parts = pending.pop().split(".")
        above = ["/".join(parts[: k + 1]) for k in range(len(parts))]
        for name in (f"{place}{end}" for place in above for end in (".py", "/__init__.py")):
            if name in found or name.startswith(beside) or not (root / name).is_file():
                continue
            found[name] = executed((root / name).read_text(encoding="utf-8"))
            pending += _imported(found[name], name.removesuffix(".py").split("/"))
    return found


def executed(source: str) -> ast.Module:
    """The syntax tree without what is never executed: docstrings, and imports for type checkers."""
    tree: ast.Module = _Executed().visit(ast.parse(source))
    return tree


class _Executed(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if ast.unparse(node.test).endswith("TYPE_CHECKING") else node


def _imported(tree: ast.Module, importer: list[str]) -> Iterator[str]:
    """What a module may import; of ``from a import b``, ``a.b`` may be a module or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = importer[: -node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
