import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from fedcover import conformal

ROOT = Path(__file__).parents[2]

ONLY_NUMPY = """
import sys

class Refuse:
    allowed = set(sys.stdlib_module_names) | {"numpy", "fedcover"}

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self.allowed:
            raise ImportError(f"blocked: {name}")

sys.meta_path.insert(0, Refuse())
import fedcover.conformal as conformal
import numpy as np
from fedcover.errors import UsageError

try:
    import torch
except ImportError:
    pass
else:
    raise SystemExit("the block does not block")
fedcover = {m for m in sys.modules if m.startswith("fedcover.")}
own = ("fedcover.conformal", "fedcover.errors", "fedcover.fixed_point")
foreign = {m for m in fedcover if not m.startswith(own)}
assert not foreign, foreign
assert conformal.calibrate([np.arange(9.0)], alpha=0.1).q_hat == 8.0
try:
    conformal.calibrate([np.arange(9.0)], alpha=0.1, rule="tdigest")
except UsageError:
    print("numpy is enough")
"""


def test_import_and_use_need_numpy_alone():
    result = subprocess.run(
        [sys.executable, "-c", ONLY_NUMPY], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "numpy is enough"


def test_the_ten_lines_of_the_module_docstring_run():
    outcome = doctest.testmod(conformal)
    assert outcome.attempted >= 9
    assert outcome.failed == 0


def test_every_name_of_the_reference_is_in_the_package():
    page = (ROOT / "docs" / "api" / "conformal.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: ([\w.]+)\n.*\n +members: \[(.*)\]", page, re.MULTILINE)
    assert len(listed) > 5
    types = {"Score", "GraphScore", "Rule", "Client", "Server", "Message", "Listener"}
    for module, names in listed:
        for name in set(names.split(", ")) - types - {"REFERENCE_ALPHA"}:
            assert getattr(conformal, name) is getattr(import_module(module), name)
