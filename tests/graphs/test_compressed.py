"""Packed tables: the same graph as unpacked ones, and no more memory than a bound."""

from __future__ import annotations

import base64
import gzip
import tracemalloc
import zlib
from pathlib import Path

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcover.errors import DataError
from fedcover.graphs import load
from fedcover.graphs.compressed import ALWAYS_FREE, MAX_EXPANSION, MAX_UNPACKED, allowed, unpacked

REAL_DECOMPRESSOR = zlib.decompressobj
NODES = b"id,label,a,b\nu,x,1,0.5\nv,y,2,-1\nw,x,3,1e-3\n"
EDGES = b"source,target\nu,v\nv,w\n"
# What libzstd makes of the lines "source,target", "u,v", "v,w", "u,v", …: real blocks.
REAL_ZSTD = base64.b64decode("KLUv/SCu5QAAqHNvdXJjZSx0YXJnZXQKdSx2CnYsdwEALaMKEw==")
REAL_TEXT = b"source,target\n" + b"u,v\nv,w\n" * 20


def zstd(*blocks: tuple[int, int, bytes]) -> bytes:
    """A frame of blocks (kind, size, content): 0 is raw, 1 a byte that is repeated (RFC 8878)."""
    frame = b"\x28\xb5\x2f\xfd\x00\x58"
    for place, (kind, size, content) in enumerate(blocks):
        last = place == len(blocks) - 1
        frame += (size << 3 | kind << 1 | last).to_bytes(3, "little") + content
    return frame


def raw(content: bytes) -> bytes:
    return zstd((0, len(content), content))


def write(folder: Path, **files: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ({"nodes_csv_gz": gzip.compress(NODES)}, {"edges_csv_gz": gzip.compress(EDGES)}),
        ({"nodes_csv_zst": raw(NODES)}, {"edges_csv_zst": raw(EDGES)}),
        ({"nodes_tsv": NODES.replace(b",", b"\t")}, {"edges_tsv": EDGES.replace(b",", b"\t")}),
        (
            {"nodes_tsv_gz": gzip.compress(NODES.replace(b",", b"\t"))},
            {"edges_csv": b"\xef\xbb\xbf" + EDGES},
        ),
        # Two members in one gzip file, and two frames in one of zstd.
        (
            {"nodes_csv_gz": gzip.compress(NODES[:20]) + gzip.compress(NODES[20:])},
            {"edges_csv_zst": raw(EDGES[:9]) + b"\x50\x2a\x4d\x18\x02\0\0\0hi" + raw(EDGES[9:])},
        ),
    ],
)
def test_packed_tables_are_the_same_graph(tmp_path, nodes, edges) -> None:
    plain = load(write(tmp_path / "plain", nodes_csv=NODES, edges_csv=EDGES))
    packed = load(write(tmp_path / "packed", **nodes, **edges))
    assert torch.equal(packed.x, plain.x)
    assert torch.equal(packed.edge_index, plain.edge_index)
    assert packed.node_ids == plain.node_ids
    assert packed.label_names == plain.label_names


def test_compressed_blocks_of_zstd(tmp_path: Path) -> None:
    (tmp_path / "edges.csv.zst").write_bytes(REAL_ZSTD)
    assert len(REAL_ZSTD) < len(REAL_TEXT)
    assert unpacked(tmp_path / "edges.csv.zst") == REAL_TEXT


def test_an_error_in_a_packed_table_has_its_line(tmp_path: Path) -> None:
    wrong = NODES.replace(b"-1", b"inf")
    for name, content in (("nodes_csv_gz", gzip.compress(wrong)), ("nodes_csv_zst", raw(wrong))):
        folder = write(tmp_path / name, edges_csv=EDGES, **{name: content})
        with pytest.raises(DataError, match=r"line 3, column 'b': is not a finite"):
            load(folder)


@pytest.mark.parametrize("end", ["gz", "zst"])
def test_a_file_that_is_cut_off_or_something_else(tmp_path: Path, end: str) -> None:
    whole = gzip.compress(NODES) if end == "gz" else raw(NODES)
    for content in (whole[:-9], whole[:12], NODES, b"\x28\xb5\x2f\xfd", b"\x1f\x8b"):
        folder = write(tmp_path / "g", edges_csv=EDGES, **{f"nodes_csv_{end}": content})
        with pytest.raises(DataError, match=rf"nodes\.csv\.{end} (is|has)"):
            load(folder)


def test_bombs_are_refused_before_they_are_held(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(200)) + packer.flush()
    run = zstd(*[(1, 2**17, b"a")] * 1600)  # 200 MiB in 6.4 kB
    for end, content in (("gz", bomb), ("zst", run)):
        folder = write(tmp_path / end, edges_csv=EDGES, **{f"nodes_csv_{end}": content})
        tracemalloc.start()
        with pytest.raises(DataError, match=rf"nodes\.csv\.{end} unpacks to more than 67,108,864"):
            load(folder)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2 * ALWAYS_FREE


def test_a_parquet_bomb_is_refused(tmp_path: Path) -> None:
    rows = 30_000_000
    same = pl.repeat(0, rows, eager=True, dtype=pl.Int8)
    pl.DataFrame({"id": same, "label": same, "a": same}).write_parquet(tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_bytes(EDGES)
    assert (tmp_path / "nodes.parquet").stat().st_size < 10**6
    with pytest.raises(DataError, match=r"nodes\.parquet unpacks to more than"):
        load(tmp_path)


class Counted:
    """A decompressor that notes how many bytes it is handed."""

    handed = 0

    def __init__(self, *arguments: int) -> None:
        self._real = REAL_DECOMPRESSOR(*arguments)

    def decompress(self, content: bytes, *arguments: int) -> bytes:
        Counted.handed += len(content)
        return self._real.decompress(content, *arguments)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def test_many_members_of_gzip_take_work_in_proportion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zlib, "decompressobj", Counted)
    path, work = tmp_path / "edges.csv.gz", {}
    for members in (2_000, 8_000):
        path.write_bytes(gzip.compress(b"") * members + b"\0" * 10_000 + gzip.compress(EDGES))
        Counted.handed = 0
        assert unpacked(path) == EDGES
        work[members] = Counted.handed
    assert 0 < work[8_000] < 5 * work[2_000]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.integers(0, 5000))
def test_members_of_gzip_are_joined(tmp_path_factory, parts: list[bytes], zeros: int) -> None:
    path = tmp_path_factory.mktemp("gz") / "t.gz"
    long = [part * 3000 for part in parts]
    path.write_bytes(b"".join(gzip.compress(part) + bytes(zeros) for part in long))
    assert unpacked(path) == b"".join(long)


@given(st.integers(0, 2**45))
def test_what_is_allowed_grows_with_the_file_between_two_bounds(size: int) -> None:
    assert ALWAYS_FREE <= allowed(size) <= MAX_UNPACKED
    assert allowed(size) <= allowed(size + 1)
    if ALWAYS_FREE < MAX_EXPANSION * size < MAX_UNPACKED:
        assert allowed(size) == MAX_EXPANSION * size
