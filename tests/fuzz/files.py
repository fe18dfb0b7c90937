"""The small files that are damaged, and how each is read."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedcover.graphs.links import link_texts
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
LINKS = b'node,party,other,since\na,bob,7,1\nb,bob,8,2\na,cleo,a,3\nf,bob,7,1\nf,cleo,"x, y",2\n'
ALONE = b"id,label,age\na,x,1.5\nb,y,2\nc,,30\nd,x,4\ne,y,5\nf,x,6\n"
KEYED = b"""id,label,client,age,pid
a,x,p,1.5,k1
b,y,p,2,
c,,q,30,k1
d,x,q,4,k 2
e,y,p,5,"k 2"
f,x,q,6,k3
"""
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
    folder: Path,
    name: str,
    content: bytes,
    change: Change,
    schema: Schema | None = None,
    match: str | None = None,
) -> Reader:
    """Reads a folder in which the file of this name is damaged; one with links is a party's."""
    folder.mkdir()
    stem = name.split(".")[0]
    own = {"nodes.csv": ALONE if stem == "links" else NODES, "edges.csv": EDGES}
    for other, whole in own.items():
        if other.split(".")[0] != stem:
            (folder / other).write_bytes(whole)

    def read(rng: np.random.Generator) -> object:
        (folder / name).write_bytes(change(content, rng))
        missing = "impute" if rng.random() < 0.5 else "refuse"
        graph = read_folder(folder, schema, missing, match=match)
        return link_texts(graph, "me") if stem == "links" else graph

    return read


def npz_reader(folder: Path, content: bytes, change: Change) -> Reader:
    """Reads a damaged npz."""
    folder.mkdir()

    def read(rng: np.random.Generator) -> object:
        (folder / "graph.npz").write_bytes(change(content, rng))
        return read_npz(folder / "graph.npz")

    return read
