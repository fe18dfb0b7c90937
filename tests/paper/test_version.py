"""The version of the code changes with what a result depends on, and with nothing else."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedcover
from fedcover.paper.version import BESIDE, CELL, code_version, executed, fingerprint, sources

SRC = Path(fedcover.__file__).parents[1]


def test_code_is_told_from_comments():
    def of(source):
        return ast.dump(executed(source))

    source = 'def f(x):\n    """Doc."""\n    return x + 1\n'
    same = "# why\ndef f(x):\n    return (x +\n            1)\n"
    assert of(source) == of(same)
    assert of(source) != of(source.replace("+ 1", "+ 2"))
    assert of("class A:\n    x = 1\n    'of x'\n") == of("class A:\n    x = 1\n")
    assert len(code_version()) == 12


MODULES = {
    "__init__": "",
    "start": "import json\nfrom p.inner import deep, LIMIT\nimport p.plain\n",
    "plain": "def f():\n    from p import lazy\n    return lazy\n",
    "lazy": "from . import beside_lazy\n",
    "beside_lazy": "try:\n    import p.tried as t\nexcept ImportError:\n    t = None\n",
    "tried": "",
    "inner/__init__": "from .limit import LIMIT\n",
    "inner/limit": "LIMIT = 1\n",
    "inner/deep": "from ..above import A\nfrom p.page import draw\n",
    "above": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.typed import T\n"
    "else:\n    from p.untyped import T\nA = 1\n",
    "typed": "",
    "untyped": "",
    "page/__init__": "from p.colours import RED\n",
    "colours": "",
    "alone": "import p.start\n",
}


@pytest.fixture
def package(tmp_path):
    """A package whose modules import each other in every way there is."""
    for name, content in MODULES.items():
        path = tmp_path / "p" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def test_all_that_is_imported_at_any_depth_is_found(package):
    whole = sources(package, "p.start")
    unreached = {"typed", "alone"}
    assert set(whole) == {f"p/{name}.py" for name in MODULES if name not in unreached}
    few = sources(package, "p.start", ("p/page/",))
    assert set(whole) - set(few) == {"p/page/__init__.py", "p/colours.py"}


@pytest.mark.parametrize("name", MODULES)
def test_the_hash_changes_with_what_is_imported_alone(package, name):
    before = fingerprint(package, "p.start")
    path = package / "p" / f"{name}.py"
    path.write_text(f"{path.read_text()}# a word\n")
    assert fingerprint(package, "p.start") == before
    path.write_text(f"{path.read_text()}more = 1\n")
    assert (fingerprint(package, "p.start") == before) == (name in ("typed", "alone"))


@pytest.fixture(scope="module")
def counted():
    return set(sources(SRC, CELL, BESIDE))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("hashing.py", True),  # makes the dropout masks
        ("algorithm/gen.py", True),
        ("training/program.py", True),
        ("conformal/rules.py", True),
        ("paper/rows.py", True),
        ("__init__.py", False),  # has the release's number
        ("report/page.py", False),
        ("report/layout.py", False),
        ("cli/run.py", False),
        ("paper/figures.py", False),
    ],
)
def test_what_only_presents_is_not_counted(counted, name, counts):
    assert (SRC / "fedcover" / name).is_file()
    assert (f"fedcover/{name}" in counted) == counts


def test_another_dropout_mask_is_another_version(tmp_path):
    before = fingerprint(SRC, CELL, BESIDE)
    copy = shutil.copytree(SRC / "fedcover", tmp_path / "fedcover")
    (copy / "report" / "page.py").unlink()
    assert fingerprint(tmp_path, CELL, BESIDE) == before
    path = copy / "hashing.py"
    path.write_text(path.read_text().replace("np.uint64(27)", "np.uint64(28)"))
    assert fingerprint(tmp_path, CELL, BESIDE) != before


COMPUTE = """
import json, sys
from types import SimpleNamespace

sys.modules["fedcover.report"] = None  # whoever imports it fails
from fedcover.paper.rows import compute
from fedcover import Config

config = Config(
    methods=("fed+prox+prior+mix", "gen", "fedsage+"), clients=2, seeds=1, rounds=1, hidden=4,
    resplits=2, gen={"prototypes": (5,), "shares": (0.2,), "link_rounds": 1, "vae": {"epochs": 1}},
)
cell = SimpleNamespace(graph="cora", preset="", variant="", method="fed", config=config, key="")
assert len(compute(cell))
print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith("fedcover.") and m]))
"""


def test_a_cell_is_computed_with_nothing_that_is_not_counted(counted):
    command, alone = [sys.executable, "-c", COMPUTE], {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {Path(file).relative_to(SRC).as_posix() for file in json.loads(done.stdout)} <= counted
