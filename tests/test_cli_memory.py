"""Freed memory is kept by the commands that train, where the C library can be told to."""

import ctypes
import platform
import subprocess
import sys

import pytest

from fedcover import cli
from fedcover.cli import paper, run, tune
from fedcover.cli.memory import keep_freed_memory

# Blocks of 32 MiB are made and freed, as steps of training do; pages made for them are counted.
PROGRAM = """
import resource, sys
import numpy as np, torch
from fedcover.cli.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
torch.set_num_threads(2)
def step():
    return float((torch.ones(8 * 2**20) * 2).sum()), float(np.ones(4 * 2**20).sum())
expected = (2.0 * 8 * 2**20, 4.0 * 2**20)
assert all(step() == expected for _ in range(10))  # until the heap has its size
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
assert all(step() == expected for _ in range(10))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_numbers_are_right_and_pages_are_made_once():
    assert faults("kept") < faults("as it is") / 2


def test_where_there_is_no_mallopt_nothing_happens(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    keep_freed_memory()

    def refuse(_):
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    keep_freed_memory()


@pytest.mark.parametrize(
    ("module", "words"),
    [(run, ["run", "nowhere"]), (tune, ["tune", "nowhere"]), (paper, ["paper", "nothing"])],
)
def test_the_commands_that_train_ask_for_it(module, words, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr(module, "keep_freed_memory", lambda: asked.append(True))
    monkeypatch.setattr(sys, "argv", ["fedcover", *words])
    with pytest.raises(SystemExit):
        cli.main()
    assert "fedcover: " in capsys.readouterr().err
    assert asked == [True]
