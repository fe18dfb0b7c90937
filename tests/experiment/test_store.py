import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedcover import DataError, UsageError
from fedcover.experiment.store import check_target, write_run

FILES = ["groups.csv", "results.csv", "run.json", "sets.parquet"]


def write(folder, **changes):
    tables = {
        "results": pl.DataFrame({"q_hat": [float("inf"), 0.1]}),
        "groups": pl.DataFrame({"kind": ["all"]}),
        "sets": pl.DataFrame({"set": [["a", "b"], []]}),
        "info": {"notes": []},
    }
    return write_run(folder, **(tables | changes))


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_folder_holds_the_contracts_files_and_nothing_stands_beside_it(tmp_path):
    folder = tmp_path / "deep" / "run"
    assert write(folder) == folder
    assert listing(folder) == FILES
    assert listing(folder.parent) == ["run"]
    assert (folder / "results.csv").read_text() == "q_hat\ninf\n0.1\n"
    assert pl.read_parquet(folder / "sets.parquet")["set"].to_list() == [["a", "b"], []]
    assert folder.stat().st_mode & 0o755 == 0o755  # not the private mode of a temporary folder


def test_json_spells_infinity_and_knows_numpy(tmp_path):
    info = {"a": [float("inf"), -float("inf"), float("nan"), 1.5], "b": (np.int64(3),), 4: None}
    text = (write(tmp_path / "run", info=info) / "run.json").read_text()
    refuse = pytest.fail  # a bare Infinity or NaN is not JSON
    parsed = json.loads(text, parse_constant=lambda name: refuse(name))
    assert parsed == {"a": ["inf", "-inf", "nan", 1.5], "b": [3], "4": None}


def test_an_earlier_run_is_replaced_whole(tmp_path):
    folder = write(tmp_path / "run")
    (folder / "report.html").write_text("of the earlier run")
    write(folder, info={"second": True})
    assert listing(folder) == FILES
    assert json.loads((folder / "run.json").read_text()) == {"second": True}
    assert listing(tmp_path) == ["run"]


def test_an_empty_folder_may_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    assert listing(write(tmp_path / "run")) == FILES


class Fails:
    """A table that cannot be written: the disk is full, or the user presses Ctrl-C."""

    def __init__(self, error):
        self.error = error

    def write_parquet(self, path):
        path.write_bytes(b"half a fi")
        raise self.error


@pytest.mark.parametrize(
    ("error", "seen"),
    [(OSError(28, "No space left on device"), DataError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
@pytest.mark.parametrize("earlier", [False, True])
def test_a_failure_leaves_the_earlier_run_or_nothing(tmp_path, error, seen, earlier):
    folder = tmp_path / "run"
    if earlier:
        write(folder, info={"earlier": True})
    with pytest.raises(seen) as caught:
        write(folder, sets=Fails(error))
    if seen is DataError:
        assert str(caught.value) == f"{folder} cannot be written: No space left on device."
    assert listing(tmp_path) == (["run"] if earlier else [])
    if earlier:
        assert json.loads((folder / "run.json").read_text()) == {"earlier": True}


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_failed_swap_puts_the_earlier_run_back(tmp_path, monkeypatch, error):
    folder = write(tmp_path / "run", info={"earlier": True})
    rename = Path.rename

    def break_the_second(self, target):
        if self.name == "fresh":
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", break_the_second)
    with pytest.raises((DataError, KeyboardInterrupt)):
        write(folder)
    assert json.loads((folder / "run.json").read_text()) == {"earlier": True}
    assert listing(tmp_path) == ["run"]


def test_a_folder_that_is_something_else_is_refused_and_kept(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="exists and is not a run folder"):
        write(tmp_path)
    assert listing(tmp_path) == ["thesis.tex"]


def test_files_in_the_way_are_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match="file is a file; a run needs a folder"):
        check_target(file)
    with pytest.raises(UsageError, match=r"file is a file; .*run cannot be made in it"):
        check_target(file / "deep" / "run")


def test_the_folder_one_stands_in_is_refused(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for folder in (Path(), tmp_path / "empty"):
        with pytest.raises(UsageError, match="is the folder you are in"):
            check_target(folder)
    check_target(Path("run"))


def test_a_folder_without_permission_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(DataError, match=f"cannot be written: {tmp_path} is not yours to write to"):
        check_target(tmp_path / "deep" / "run")
