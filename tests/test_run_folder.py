import json
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedcover import DataError, UsageError
from fedcover.run_folder import check_target, write_run
from fedcover.tables import holds_run

FILES = ["groups.csv", "ledger.parquet", "results.csv", "run.json", "sets.parquet"]


def write(folder, **changes):
    tables = {
        "results": pl.DataFrame({"q_hat": [float("inf"), 0.1]}),
        "groups": pl.DataFrame({"kind": ["all"]}),
        "sets": pl.DataFrame({"set": [["a", "b"], []]}),
        "ledger": pl.DataFrame({"shape": [[256], [2, 3]]}),
        "info": {"fedcover": "1.0"},
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
    assert pl.read_parquet(folder / "ledger.parquet")["shape"].to_list() == [[256], [2, 3]]
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
    (folder / "model").mkdir()
    (folder / "model" / "weights.pt").write_text("of the earlier run")
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
        write(folder, info={"fedcover": "0.9"})
    with pytest.raises(seen) as caught:
        write(folder, sets=Fails(error))
    if seen is DataError:
        assert str(caught.value) == f"{folder} cannot be written: No space left on device."
    assert listing(tmp_path) == (["run"] if earlier else [])
    if earlier:
        assert json.loads((folder / "run.json").read_text()) == {"fedcover": "0.9"}


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_failed_swap_puts_the_earlier_run_back(tmp_path, monkeypatch, error):
    folder = write(tmp_path / "run", info={"fedcover": "0.9"})
    rename = Path.rename

    def break_the_second(self, target):
        if self.name == "fresh":
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", break_the_second)
    with pytest.raises((DataError, KeyboardInterrupt)):
        write(folder)
    assert json.loads((folder / "run.json").read_text()) == {"fedcover": "0.9"}
    assert listing(tmp_path) == ["run"]


def test_a_folder_that_is_something_else_is_refused_and_kept(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError) as caught:
        write(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} exists and is not a run folder: it holds thesis.tex, which would be lost; "
        "choose another folder."
    )
    assert listing(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "model.pt"])
def test_a_run_folder_with_a_foreign_file_is_refused_and_kept(tmp_path, name):
    folder = write(tmp_path / "run")
    (folder / name).write_text("what I thought of it")
    with pytest.raises(UsageError, match=f"it holds {name}, which would be lost"):
        write(folder)
    assert (folder / name).read_text() == "what I thought of it"
    assert listing(folder) == sorted([*FILES, name])


@pytest.mark.parametrize("name", ["thesis", "results.csv"])
def test_a_run_folder_with_a_foreign_folder_is_refused_and_kept(tmp_path, name):
    folder = write(tmp_path / "run")
    (folder / "results.csv").unlink()
    (folder / name).mkdir()
    with pytest.raises(UsageError, match=f"it holds {name}, which would be lost"):
        check_target(folder)


@pytest.mark.parametrize("text", ["{}", "[1]", '"fedcover"', "half a fi", "\udcff", None])
def test_a_run_json_of_another_program_is_refused_and_kept(tmp_path, text):
    (tmp_path / "results.csv").write_text("of another program")
    if text is not None:
        (tmp_path / "run.json").write_bytes(text.encode(errors="surrogateescape"))
    assert not holds_run(tmp_path)
    with pytest.raises(UsageError, match=r"results\.csv, but no run\.json that fedcover wrote"):
        write(tmp_path)
    assert (tmp_path / "results.csv").read_text() == "of another program"


def test_an_earlier_run_is_recognised(tmp_path):
    assert not holds_run(tmp_path / "run")
    assert holds_run(write(tmp_path / "run"))


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
    def refuse(*_, prefix, dir):
        assert (prefix, dir) == (".run-", tmp_path)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    folder = tmp_path / "deep" / "run"
    with pytest.raises(DataError) as caught:
        check_target(folder)
    assert str(caught.value) == f"{folder} cannot be written: {tmp_path}: Permission denied."


def test_a_name_that_leaves_no_room_is_refused_before_any_work(tmp_path):
    with pytest.raises(DataError, match=r"cannot be written: .*File name too long"):
        check_target(tmp_path / ("r" * 250))


def test_the_check_leaves_nothing_behind(tmp_path):
    check_target(tmp_path / "deep" / "run")
    assert listing(tmp_path) == []
