"""Ten thousand files with other bytes: each is read, or refused by a sentence of ours.

Where a container has a checksum, what is inside is damaged too, and packed again.
"""

from __future__ import annotations

import gzip
import io
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from fedcover.graphs.planetoid import read_pickled, read_planetoid
from fedcover.graphs.schema import parse_schema

from .damage import damaged, one_of, other_member, tried
from .files import (
    DENSE,
    EDGES,
    KEYED,
    LINKS,
    NODES,
    SCHEMA,
    Reader,
    folder_reader,
    npz_reader,
)

COUNTS = {
    "nodes.csv": 2000,
    "nodes.csv, read with a schema": 600,
    "edges.csv": 600,
    "nodes.tsv": 300,
    "nodes.csv, with semicolons": 600,
    "nodes.csv.gz": 600,
    "nodes.csv.gz, inside": 300,
    "nodes.csv.zst": 600,
    "nodes.csv.zst, inside": 300,
    "nodes.csv, with keys": 300,
    "links.csv": 250,
    "links.csv.gz": 200,
    "links.parquet": 200,
    "nodes.parquet": 1000,
    "graph.npz": 900,
    "graph.npz, inside": 600,
    "planetoid": 900,
    "pickled": 900,
    "schema.json": 1200,
}


def raw_zstd(content: bytes) -> bytes:
    """A zstd frame of one block that is not compressed (RFC 8878)."""
    return b"\x28\xb5\x2f\xfd\x00\x58" + (len(content) << 3 | 1).to_bytes(3, "little") + content


def pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=2 + (isinstance(value, np.ndarray | sparse.csr_matrix)))


def planetoid_files() -> dict[str, bytes]:
    one_hot = np.eye(3, dtype=np.int32)
    return {
        "allx": pickled(sparse.csr_matrix(np.eye(3, 8))),
        "tx": pickled(sparse.csr_matrix(np.eye(2, 8))),
        "ally": pickled(one_hot),
        "ty": pickled(one_hot[[1, 2]]),
        "graph": pickled(defaultdict(list, {0: [1, 4], 1: [0], 3: [2], 2: [3, 1]})),
        "test.index": b"4\n3\n",
    }


def planetoid_reader(folder: Path) -> Reader:
    folder.mkdir()
    files = planetoid_files()

    def read(rng: np.random.Generator) -> object:
        chosen = one_of(list(files), rng)
        for part, content in files.items():
            own = damaged(content, rng) if part == chosen else content
            (folder / f"ind.tiny.{part}").write_bytes(own)
        return read_planetoid(folder, "tiny")

    return read


@pytest.fixture
def readers(tmp_path: Path) -> dict[str, Reader]:
    """What is read, by the name of the file that is damaged."""
    table, links = io.BytesIO(), io.BytesIO()
    pl.read_csv(NODES).write_parquet(table)
    pl.read_csv(LINKS).write_parquet(links)
    tabbed = pl.read_csv(NODES).write_csv(separator="\t").encode()
    european = NODES.replace(b",", b";").replace(b"1.5", b"1,5").replace(b".5;", b",5;")
    inside = tmp_path / "inside"
    inside.mkdir()
    zipped = {"gz": gzip.compress, "zst": raw_zstd}
    pickles = list(planetoid_files().values())[:5]
    spelt = SCHEMA.to_json().encode()

    def packed(pack: Callable) -> Callable:
        return lambda content, rng: pack(damaged(content, rng))

    return {
        "nodes.csv": folder_reader(tmp_path / "a", "nodes.csv", NODES, damaged),
        "nodes.csv, read with a schema": folder_reader(
            tmp_path / "b", "nodes.csv", NODES, damaged, SCHEMA
        ),
        "edges.csv": folder_reader(tmp_path / "c", "edges.csv", EDGES, damaged),
        "nodes.tsv": folder_reader(tmp_path / "d", "nodes.tsv", tabbed, damaged),
        "nodes.csv, with semicolons": folder_reader(tmp_path / "s", "nodes.csv", european, damaged),
        **{
            f"nodes.csv.{end}": folder_reader(
                tmp_path / end, f"nodes.csv.{end}", pack(NODES), damaged
            )
            for end, pack in zipped.items()
        },
        **{
            f"nodes.csv.{end}, inside": folder_reader(
                inside / end, f"nodes.csv.{end}", NODES, packed(pack)
            )
            for end, pack in zipped.items()
        },
        "nodes.csv, with keys": folder_reader(
            tmp_path / "k", "nodes.csv", KEYED, damaged, match="pid"
        ),
        "links.csv": folder_reader(tmp_path / "l", "links.csv", LINKS, damaged),
        "links.csv.gz": folder_reader(
            tmp_path / "m", "links.csv.gz", gzip.compress(LINKS), damaged
        ),
        "links.parquet": folder_reader(tmp_path / "n", "links.parquet", links.getvalue(), damaged),
        "nodes.parquet": folder_reader(tmp_path / "e", "nodes.parquet", table.getvalue(), damaged),
        "graph.npz": npz_reader(tmp_path / "f", DENSE, damaged),
        "graph.npz, inside": npz_reader(tmp_path / "g", DENSE, other_member),
        "planetoid": planetoid_reader(tmp_path / "h"),
        "pickled": lambda rng: read_pickled(damaged(one_of(pickles, rng), rng), "graph"),
        "schema.json": lambda rng: parse_schema(
            damaged(spelt, rng).decode(errors="surrogateescape"), "schema.json"
        ),
    }


def test_there_are_ten_thousand() -> None:
    assert sum(COUNTS.values()) >= 10_000


@pytest.mark.parametrize("kind", COUNTS)
def test_a_damaged_file_is_read_or_refused(
    kind: str, readers: dict[str, Reader], capfd: pytest.CaptureFixture[str]
) -> None:
    tried(kind, readers[kind], COUNTS[kind], capfd)
