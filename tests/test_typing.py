"""What type checkers see of the package's own names, which are loaded on first use."""

import ast
from pathlib import Path

import fedcover


def test_type_checkers_are_told_where_every_public_name_is_from():
    tree = ast.parse(Path(fedcover.__file__).read_text(encoding="utf-8"))
    (told,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(told.test) == "TYPE_CHECKING"
    homes = {
        name.asname: line.module  # only "a as a" is passed on to users under --strict
        for line in told.body
        if isinstance(line, ast.ImportFrom)
        for name in line.names
    }
    assert homes == fedcover._HOME


def test_the_package_says_that_it_is_typed():
    assert (Path(fedcover.__file__).parent / "py.typed").is_file()
