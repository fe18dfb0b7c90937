"""The small files that are damaged, and how each is read."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedcover.graphs.npz import read_npz
from fedcover.graphs.readers import read_folder
from fedcover.graphs.schema import Schema

Reader = Callable[[np.random.Generator], object]
Change = Callable[[bytes, np.random.Generator], bytes]

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


def npz(**arrays: np.ndarray) -> bytes:
    """The file that these arrays make."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


_LINKS = {
    "adj_data": np.ones(4, np.float32),
    "adj_indices": np.array([1, 0, 3, 2], np.int32),
    "adj_indptr": np.arange(5, dtype=np.int32),
    "adj_shape": np.array([4, 4]),
}
DENSE = npz(
    **_LINKS,
    attr_matrix=np.arange(12, dtype=np.float32).reshape(4, 3),
    labels=np.array([0, 1, 1, 0]),
    class_names=np.array(["no", "yes"]),
)
SPARSE = npz(
    **_LINKS,
    attr_data=np.ones(4, np.float32),
    attr_indices=np.array([1, 0, 2, 2], np.int32),
    attr_indptr=np.arange(5, dtype=np.int32),
    attr_shape=np.array([4, 3]),
    labels=np.array(["u", "v", "", "u"]),
    node_names=np.array(["a", "b", "c", "d"]),
)


def folder_reader(
    folder: Path, name: str, content: bytes, change: Change, schema: Schema | None = None
) -> Reader:
    """Reads a folder in which the file of this name is damaged."""
    folder.mkdir()
    for other, own in (("nodes.csv", NODES), ("edges.csv", EDGES)):
        if other.split(".")[0] != name.split(".")[0]:
            (folder / other).write_bytes(own)

    def read(rng: np.random.Generator) -> object:
        (folder / name).write_bytes(change(content, rng))
        return read_folder(folder, schema, "impute" if rng.random() < 0.5 else "refuse")

    return read


def npz_reader(folder: Path, content: bytes, change: Change) -> Reader:
    """Reads a damaged npz."""
    folder.mkdir()

    def read(rng: np.random.Generator) -> object:
        (folder / "graph.npz").write_bytes(change(content, rng))
        return read_npz(folder / "graph.npz")

    return read
