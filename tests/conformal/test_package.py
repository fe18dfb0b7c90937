import doctest
import subprocess
import sys

from fedcover import conformal

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


def test_every_public_name_exists_once():
    assert len(set(conformal.__all__)) == len(conformal.__all__)
    assert all(hasattr(conformal, name) for name in conformal.__all__)
