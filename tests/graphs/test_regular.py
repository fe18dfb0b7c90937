"""Pipes and devices are refused before they are opened: opening would wait, or never end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcover.config import read_settings
from fedcover.errors import DataError
from fedcover.files import check_regular
from fedcover.graphs.npz import read_npz
from fedcover.graphs.planetoid import read_planetoid
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import read_schema

KINDS: dict[str, Callable[[Path], None]] = {
    "folder": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "device": lambda path: path.symlink_to("/dev/zero"),
}
READERS: dict[str, Callable[[Path], object]] = {
    **{
        f"nodes{end}": lambda path: read_folder(path.parent)
        for end in (".csv", ".tsv.gz", ".csv.zst", ".parquet")
    },
    "graph.npz": read_npz,
    "ind.x.allx": lambda path: read_planetoid(path.parent, "x"),
    "schema.json": read_schema,
    "run.toml": read_settings,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    KINDS[kind](tmp_path / name)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("opened")

    for way in ("open", "read_text", "read_bytes"):
        monkeypatch.setattr(Path, way, never)
    monkeypatch.setattr("numpy.load", never)
    with pytest.raises(DataError) as caught:
        READERS[name](tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name} is not a regular file."


def test_edges_too(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,label,a\nu,x,1\nv,y,2\n")
    os.mkfifo(tmp_path / "edges.csv")
    with pytest.raises(DataError, match=r"edges\.csv is not a regular file\."):
        read_folder(tmp_path)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    check_regular(tmp_path / "link")
    check_regular(tmp_path / "nothing")
