"""Ten thousand damaged files: each is read, or refused by a sentence of ours; nothing else happens.

Mutations are seeded, so that a failure can be had again: its message holds the seed. Where a
container has a checksum, what is inside is damaged too, and packed again.
"""

from __future__ import annotations

import gzip
import io
import pickle
import resource
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from fedcover.errors import FedcoverError
from fedcover.graphs.npz import read_npz
from fedcover.graphs.pickled import read_pickled
from fedcover.graphs.planetoid import read_planetoid
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema, parse_schema

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
    "nodes.parquet": 1000,
    "graph.npz": 900,
    "graph.npz, inside": 600,
    "planetoid": 900,
    "pickled": 900,
    "schema.json": 1200,
}
MOST_GROWTH = 700 * 2**20  # bytes of memory that all of it may add

NODES = b"""id,label,client,split,age,ward,smokes
a,x,p,train,1.5,north,true
b,y,p,calib,2,south,false
c,,q,,30,north,true
d,x,q,test,-4e3,"we, st",true
e,y,p,valid,5,north,false
f,x,q,train,.5,south,true
"""
EDGES = b"source,target,weight\na,b,1\nb,c,1\nc,d,2\nd,e,1\na,a,1\nf,a,9\n"
SCHEMA = Schema(
    (("age", "number"), ("ward", ("north", "south", "we, st")), ("smokes", "binary")), ("x", "y")
)
TOKENS = (
    *(b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b",", b'"', b"\t", b";"),
    *(
        b"nan",
        b"inf",
        b"-inf",
        b"1e999",
        b"-0",
        b"NULL",
        b"id",
        b"label",
        b"Y",
        b"\x1f",
        b"[",
        b"{",
    ),
    *(b"9" * 40, b"A" * 300, b",,,,", b"\xf0\x9f\x98\x80", b"../", b"\x7f\xff\xff\xff", b"\\ud800"),
)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """A few small wounds: bits, bytes, words, pieces that are missing, doubled or moved."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(0, len(data) + 1))
        length = int(rng.integers(1, 12))
        match int(rng.integers(0, 8)):
            case 0 if data:
                data[at % len(data)] ^= 1 << int(rng.integers(0, 8))
            case 1 if data:
                data[at % len(data)] = int(rng.integers(0, 256))
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = TOKENS[int(rng.integers(0, len(TOKENS)))]
            case 4:
                data[at : at + length] = TOKENS[int(rng.integers(0, len(TOKENS)))]
            case 5:
                data[at:at] = data[at : at + 5 * length]
            case 6 if rng.random() < 0.3:
                del data[at:]
            case 7:
                other = int(rng.integers(0, len(data) + 1))
                data[at : at + length] = data[other : other + length]
            case _:
                data[at:at] = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
    return bytes(data)


def raw_zstd(content: bytes) -> bytes:
    """A zstd frame of one block that is not compressed (RFC 8878)."""
    return b"\x28\xb5\x2f\xfd\x00\x58" + (len(content) << 3 | 1).to_bytes(3, "little") + content


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def repacked(content: bytes, rng: np.random.Generator) -> bytes:
    """The archive with one member damaged, its checksum right."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        chosen = old.namelist()[int(rng.integers(0, len(old.namelist())))]
        for name in old.namelist():
            inside = old.read(name)
            new.writestr(name, mutated(inside, rng) if name == chosen else inside)
    return file.getvalue()


def pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=2 + (isinstance(value, np.ndarray | sparse.csr_matrix)))


Reader = Callable[[np.random.Generator], object]


def folder_reader(
    folder: Path, name: str, content: bytes, change: Callable, schema: Schema | None = None
) -> Reader:
    folder.mkdir()
    for other, own in (("nodes.csv", NODES), ("edges.csv", EDGES)):
        if other.split(".")[0] != name.split(".")[0]:
            (folder / other).write_bytes(own)

    def read(rng: np.random.Generator) -> object:
        (folder / name).write_bytes(change(content, rng))
        return read_folder(folder, schema, "impute" if rng.random() < 0.5 else "refuse")

    return read


def npz_reader(folder: Path, change: Callable) -> Reader:
    folder.mkdir()
    content = npz(
        adj_data=np.ones(4, np.float32),
        adj_indices=np.array([1, 0, 3, 2], np.int32),
        adj_indptr=np.arange(5, dtype=np.int32),
        adj_shape=np.array([4, 4]),
        attr_matrix=np.arange(12, dtype=np.float32).reshape(4, 3),
        labels=np.array([0, 1, 1, 0]),
        class_names=np.array(["no", "yes"]),
    )

    def read(rng: np.random.Generator) -> object:
        (folder / "graph.npz").write_bytes(change(content, rng))
        return read_npz(folder / "graph.npz")

    return read


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
        chosen = list(files)[int(rng.integers(0, len(files)))]
        for part, content in files.items():
            own = mutated(content, rng) if part == chosen else content
            (folder / f"ind.tiny.{part}").write_bytes(own)
        return read_planetoid(folder, "tiny")

    return read


@pytest.fixture
def readers(tmp_path: Path) -> dict[str, Reader]:
    """What is read, by the name of the file that is damaged."""
    table = io.BytesIO()
    pl.read_csv(NODES).write_parquet(table)
    tabbed = pl.read_csv(NODES).write_csv(separator="\t").encode()
    european = NODES.replace(b",", b";").replace(b"1.5", b"1,5").replace(b".5;", b",5;")
    inside = tmp_path / "inside"
    inside.mkdir()
    zipped = {"gz": gzip.compress, "zst": raw_zstd}
    pickles = list(planetoid_files().values())[:5]
    spelt = SCHEMA.to_json().encode()

    def packed(pack: Callable) -> Callable:
        return lambda content, rng: pack(mutated(content, rng))

    return {
        "nodes.csv": folder_reader(tmp_path / "a", "nodes.csv", NODES, mutated),
        "nodes.csv, read with a schema": folder_reader(
            tmp_path / "b", "nodes.csv", NODES, mutated, SCHEMA
        ),
        "edges.csv": folder_reader(tmp_path / "c", "edges.csv", EDGES, mutated),
        "nodes.tsv": folder_reader(tmp_path / "d", "nodes.tsv", tabbed, mutated),
        "nodes.csv, with semicolons": folder_reader(tmp_path / "s", "nodes.csv", european, mutated),
        **{
            f"nodes.csv.{end}": folder_reader(
                tmp_path / end, f"nodes.csv.{end}", pack(NODES), mutated
            )
            for end, pack in zipped.items()
        },
        **{
            f"nodes.csv.{end}, inside": folder_reader(
                inside / end, f"nodes.csv.{end}", NODES, packed(pack)
            )
            for end, pack in zipped.items()
        },
        "nodes.parquet": folder_reader(tmp_path / "e", "nodes.parquet", table.getvalue(), mutated),
        "graph.npz": npz_reader(tmp_path / "f", mutated),
        "graph.npz, inside": npz_reader(tmp_path / "g", repacked),
        "planetoid": planetoid_reader(tmp_path / "h"),
        "pickled": lambda rng: read_pickled(mutated(pickles[int(rng.integers(0, 5))], rng)),
        "schema.json": lambda rng: parse_schema(
            mutated(spelt, rng).decode(errors="surrogateescape"), "schema.json"
        ),
    }


def test_there_are_ten_thousand() -> None:
    assert sum(COUNTS.values()) >= 10_000


@pytest.mark.parametrize("kind", COUNTS)
def test_a_damaged_file_is_read_or_refused(kind: str, readers: dict[str, Reader]) -> None:
    read, survived, refusals = readers[kind], 0, []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for seed in range(COUNTS[kind]):
        try:
            read(np.random.default_rng([seed, 0xF022]))
            survived += 1
        except FedcoverError as refusal:
            refusals.append(str(refusal))
        except (Exception, pl.exceptions.PanicException) as error:
            raise AssertionError(f"{kind}, seed {seed}: {error!r}") from error
    # Wounds are small enough that some files survive them, and deep enough that some do not.
    assert survived > 0
    assert len(refusals) > 0
    assert not [refusal for refusal in refusals if "\n" in refusal]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert grown < MOST_GROWTH
