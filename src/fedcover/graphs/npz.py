"""Graphs in one ``.npz``, in the layout of the gnn-benchmark files (Shchur et al., 2018).

Arrays: ``adj_data/indices/indptr/shape`` (CSR; only where entries stand matters),
``attr_data/indices/indptr/shape`` or a dense ``attr_matrix``, ``labels`` (n,; -1 or empty text:
none), and optionally ``class_names`` (C,) and ``node_names`` (n,). Nothing pickled is ever loaded:
the two optional arrays are left aside if they are stored as objects (labels then go by their
numbers), a needed one stored so is an error.
"""

import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError, shown
from fedcover.graphs.assemble import assemble
from fedcover.graphs.files import allowed, check_expansion, check_regular
from fedcover.graphs.labels import NO_LABEL, encode, repeated, too_many

_DAMAGED = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error)
_ODD = (
    *(NotImplementedError, RuntimeError, TypeError, IndexError, OverflowError, MemoryError),
    *(struct.error, SyntaxError, tokenize.TokenError),  # numpy parses headers as Python literals
)
_FEATURE = 64  # bytes that a model has for a feature, whether the file has a value for it or not


def read_npz(path: str | Path) -> Data:
    """Read and validate a graph file; an error names the file and the array."""
    path = Path(path)
    check_regular(path)
    try:
        archive = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (*_DAMAGED, *_ODD) as error:
        raise DataError(f"{path} is not a readable npz file.") from error
    if not isinstance(archive, NpzFile):
        raise DataError(f"{path} holds a single array, not the arrays of an npz file.")
    with archive:
        _check_archive(path, archive)
        try:
            return _Reader(path, archive).graph()
        except (MemoryError, OverflowError) as error:
            raise DataError(f"{path} says that it holds more than fits into memory.") from error


def _check_archive(path: Path, archive: NpzFile) -> None:
    """Refuse, from the list of contents alone, names with paths and contents out of proportion."""
    assert archive.zip is not None
    members = archive.zip.infolist()
    for member in members:
        if any(mark in member.filename for mark in ("/", "\\", "..", "\0")):
            raise DataError(
                f"{path} holds {shown(member.filename)}; arrays have names without a path."
            )
    # No member is read beyond the size that is written here (zipfile keeps to it).
    check_expansion(path, sum(member.file_size for member in members))


class _Reader:
    """One open file: its arrays, checked one by one."""

    def __init__(self, path: Path, archive: NpzFile) -> None:
        self.path = path
        self.archive = archive

    def graph(self) -> Data:
        adjacency = self.matrix("adj")
        x = self.features()
        labels = self.array("labels", kinds="iuUb", dimensions=1)
        n = adjacency.shape[0]
        if adjacency.shape[0] != adjacency.shape[1]:
            self.refuse("adj_shape", f"is {adjacency.shape}, but an adjacency matrix is square")
        if np.isnan(adjacency.data).any():
            self.refuse("adj_data", "has NaN, but 0 is no edge and any other number one")
        if n == 0:
            self.refuse("adj_shape", "says that the graph has no nodes")
        if x.shape[0] != n:
            self.refuse("attr_*", f"has {x.shape[0]} rows, but the graph has {n} nodes")
        if x.shape[1] == 0:
            self.refuse("attr_*", "has no columns, but a node needs at least one feature")
        if len(labels) != n:
            self.refuse("labels", f"has {len(labels)} entries, but the graph has {n} nodes")
        y, label_names = self.classes(labels)
        known = y[y != NO_LABEL]
        if len(known) == 0:
            self.refuse("labels", "has no label; -1 and empty text stand for none")
        if known.min() == known.max():
            every = "every node" if len(known) == n else "every node that has one (-1 is none)"
            self.refuse(
                "labels", f"has the same value, {shown(label_names[known[0]])}, for {every}"
            )
        return assemble(
            x,
            np.stack(adjacency.nonzero()),
            y,
            name=self.path.stem,
            label_names=label_names,
            node_ids=self.node_ids(n),
        )

    def features(self) -> sparse.csr_array | NDArray[np.floating]:
        if "attr_matrix" in self.archive:
            dense = self.array("attr_matrix", kinds="iufb", dimensions=2)
            return self.finite("attr_matrix", dense)
        matrix = self.matrix("attr")
        size = self.path.stat().st_size
        most = allowed(size) // _FEATURE
        if matrix.shape[1] > most:
            self.refuse(
                "attr_shape",
                f"says that there are {matrix.shape[1]:,} features, more than the {most:,} that a "
                f"file of {size:,} bytes may have",
            )
        parts = (self.finite("attr_data", matrix.data), matrix.indices, matrix.indptr)
        return sparse.csr_array(parts, shape=matrix.shape)

    def finite(self, name: str, values: NDArray[Any]) -> NDArray[np.float32]:
        with np.errstate(
            over="ignore"
        ):  # what float32 cannot hold becomes infinite, and is refused
            values = values.astype(np.float32)
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            self.refuse(name, f"is not a finite float32 number at {wrong[0].tolist()}")
        return values

    def classes(self, labels: NDArray[Any]) -> tuple[NDArray[np.int64], list[str]]:
        """Class numbers and names; integer labels count through ``class_names`` if it is there.

        A node of which -1 stands there, or text without a letter, has no label.
        """
        names = self.optional("class_names")
        if labels.dtype.kind == "U":
            labels = np.char.strip(labels)
        known = labels != ("" if labels.dtype.kind == "U" else NO_LABEL)
        y = np.full(len(labels), NO_LABEL, dtype=np.int64)
        if names is None or labels.dtype.kind not in "iu":
            if labels.dtype.kind == "i" and (labels < NO_LABEL).any():
                below = labels[labels < NO_LABEL][0]
                self.refuse("labels", f"has {below}; they go from 0 on, and -1 is none")
            y[known], found = encode(labels[known])
            if too_many(len(found), int(known.sum())):
                self.refuse(
                    "labels",
                    f"has {len(found):,} different values for {int(known.sum()):,} nodes, too many "
                    "for classes",
                )
            return y, found
        wrong = np.flatnonzero(known & ((labels < 0) | (labels >= len(names))))
        if len(wrong):
            self.refuse(
                "labels", f"is {labels[wrong[0]]} at [{wrong[0]}], but class_names has {len(names)}"
            )
        if (twice := repeated(names)) is not None:
            self.refuse("class_names", f"has {shown(twice)} twice")
        y[known] = labels[known]
        return y, [str(name) for name in names]

    def node_ids(self, n: int) -> list[str] | NDArray[np.integer]:
        """The names, which stay numbers if they are; without names the positions."""
        names = self.optional("node_names")
        if names is None:
            return np.arange(n)
        if len(names) != n:
            self.refuse("node_names", f"has {len(names)} entries, but the graph has {n} nodes")
        if (twice := repeated(names)) is not None:
            self.refuse("node_names", f"has {shown(twice)} twice")
        return names.astype(np.int64) if names.dtype.kind in "iu" else names.tolist()

    def matrix(self, prefix: str) -> sparse.csr_array:
        """The CSR matrix ``<prefix>_*``, its structure checked before scipy relies on it."""
        data = self.array(f"{prefix}_data", kinds="iufb", dimensions=1)
        if data.dtype == np.float16:  # which scipy does not take
            data = data.astype(np.float32)
        indices = self.array(f"{prefix}_indices", kinds="iu", dimensions=1)
        indptr = self.array(f"{prefix}_indptr", kinds="iu", dimensions=1)
        shape = self.array(f"{prefix}_shape", kinds="iu", dimensions=1)
        if len(shape) != 2 or (shape < 0).any():
            self.refuse(f"{prefix}_shape", f"is {shape.tolist()}, but must be two counts")
        rows, columns = (int(size) for size in shape)
        if len(indptr) != rows + 1:
            self.refuse(f"{prefix}_indptr", f"has {len(indptr)} entries, but must have {rows + 1}")
        if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
            self.refuse(f"{prefix}_indptr", f"must rise from 0 to {len(indices)}")
        if len(data) != len(indices):
            self.refuse(
                f"{prefix}_data", f"has {len(data)} entries, but {prefix}_indices {len(indices)}"
            )
        wrong = np.flatnonzero((indices < 0) | (indices >= columns))
        if len(wrong):
            self.refuse(
                f"{prefix}_indices",
                f"is {indices[wrong[0]]} at [{wrong[0]}], but must lie in 0 … {columns - 1}",
            )
        return sparse.csr_array((data, indices, indptr), shape=(rows, columns))

    def array(self, name: str, *, kinds: str, dimensions: int) -> NDArray[Any]:
        """A needed array, of a kind (numpy's letters) and dimension that can be right."""
        if name not in self.archive:
            self.refuse(name, "is missing")
        array = self.stored(name)
        if array is None:
            self.refuse(name, "is stored as a pickled object, which is never loaded")
        if array.dtype.kind not in kinds:
            self.refuse(name, f"has the wrong type {array.dtype}")
        if array.ndim != dimensions:
            self.refuse(name, f"has {array.ndim} dimensions, but must have {dimensions}")
        return array

    def optional(self, name: str) -> NDArray[Any] | None:
        """An array of names; None if it is not there or only as pickled objects."""
        if name not in self.archive or self.stored(name) is None:
            return None
        return self.array(name, kinds="iuU", dimensions=1)

    def stored(self, name: str) -> NDArray[Any] | None:
        """The array as it is; None if reading it would mean to unpickle."""
        self.check_size(name)
        try:
            return self.archive[name]
        except ValueError as error:
            if "allow_pickle" in str(error):
                return None
            self.refuse(name, "cannot be read")
        except (*_DAMAGED, *_ODD):
            self.refuse(name, "cannot be read")

    def check_size(self, name: str) -> None:
        """Refuse an array whose header asks for other memory than the archive has bytes for."""
        assert self.archive.zip is not None
        try:
            member = self.archive.zip.getinfo(
                name if name in self.archive.zip.namelist() else f"{name}.npy"
            )
            with self.archive.zip.open(member) as file:
                version = np.lib.format.read_magic(file)
                if version == (1, 0):
                    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                else:
                    shape, _, dtype = np.lib.format.read_array_header_2_0(file)
                left = member.file_size - file.tell()
        except (*_DAMAGED, *_ODD):
            self.refuse(name, "cannot be read")
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize != left:
            self.refuse(name, f"has the shape {shape}, which its {left} bytes are not enough for")

    def refuse(self, array: str, what: str) -> NoReturn:
        raise DataError(f"{self.path}: array {array} {what}.") from None
