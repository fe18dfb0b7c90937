import pickle
import subprocess
import sys

import polars as pl
import pytest

from fedcover.errors import DataError
from fedcover.paper import grid
from fedcover.paper.store import Store, write_rows


@pytest.fixture
def cells(known):
    return grid.cells(known.values(), "default")


def test_a_written_cell_is_read_again(tmp_path, cells, frame):
    store = Store(tmp_path / "store")
    assert store.missing(cells) == cells
    rows = frame({"seed": 0}, {"seed": 1, "groups": [{"kind": "client", "group": "a",
                 "n_test": 3.0, "coverage": 0.5, "set_size": 1.0}]})  # fmt: skip
    write_rows(store.path(cells[1]), rows)
    assert store.missing(cells) == [cells[0], *cells[2:]]
    assert store.read([cells[1]]).equals(rows)
    assert pl.read_parquet(tmp_path / "store" / "*.parquet").height == 2


def test_what_a_killed_process_leaves_is_no_cell(tmp_path, cells):
    store = Store(tmp_path)
    (tmp_path / f".{cells[0].key}-x1y2").write_bytes(b"half a fi")
    assert not store.holds(cells[0])
    assert store.read([]).is_empty()


def test_a_damaged_file_is_named(tmp_path, cells):
    store = Store(tmp_path)
    store.path(cells[0]).write_bytes(b"nonsense")
    with pytest.raises(DataError, match=cells[0].key):
        store.read(cells[:1])


HOLD = """
import pickle, sys, time
from fedcover.paper.store import Store

folder, cell = pickle.load(sys.stdin.buffer)
with Store(folder).claim(cell) as ours:
    print(ours, flush=True)
    time.sleep(400)
"""


def test_a_cell_is_one_process_s_until_it_ends_or_dies(tmp_path, cells):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pickle.dump((tmp_path, cells[0]), other.stdin)
    other.stdin.flush()
    assert other.stdout.readline() == b"True\n"
    store = Store(tmp_path)
    with store.claim(cells[0]) as ours:
        assert not ours
    with store.claim(cells[1]) as ours:
        assert ours
    other.kill()
    other.communicate()
    with store.claim(cells[0]) as ours:
        assert ours


def test_a_store_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        Store(tmp_path / "file" / "store")
