"""Graphs in one ``.npz``, in the layout of the gnn-benchmark files (Shchur et al., 2018).

Arrays: ``adj_data/indices/indptr/shape`` (CSR; only where entries stand matters),
``attr_data/indices/indptr/shape`` or a dense ``attr_matrix``, ``labels`` (n,; -1 or empty text:
none), and optionally ``class_names`` (C,) and ``node_names`` (n,). Nothing pickled is ever loaded:
the two optional arrays are left aside if they are stored as objects (labels then go by their
numbers), a needed one stored so is an error.
"""

import math
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError, shown
from fedcover.graphs.assemble import assemble
from fedcover.graphs.files import allowed, check_expansion, check_regular
from fedcover.graphs.labels import NO_LABEL, encode, repeated, too_many

_FEATURE = 64  # bytes that a model has for a feature, whether the file has a value for it or not


def read_npz(path: str | Path) -> Data:
    """Read and validate a graph file; an error names the file and the array."""
    path = Path(path)
    check_regular(path)
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except Exception as error:  # a damaged one can be wrong in any way
        raise DataError(f"{path} is not a readable npz file.") from error
    with archive:
        members = archive.infolist()
        for member in members:
            if any(mark in member.filename for mark in ("/", "\\", "..", "\0")):
                raise DataError(
                    f"{path} holds {shown(member.filename)}; arrays have names without a path."
                )
        # No member is read beyond the size that is written here (zipfile keeps to it).
        check_expansion(path, sum(member.file_size for member in members))
        return _Reader(path, archive).graph()


class _Reader:
    """One open file: its arrays, checked one by one."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self.archive = archive
        self.members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}

    def graph(self) -> Data:
        adjacency = self.matrix("adj")
        x = self.features()
        labels = self.array("labels", kinds="iuUb", dimensions=1)
        n = adjacency.shape[0]
        for array, wrong, what in (
            ("adj_shape", n != adjacency.shape[1], f"is {adjacency.shape}, but must be square"),
            ("adj_shape", n == 0, "says that the graph has no nodes"),
            ("adj_data", np.isnan(adjacency.data).any(), "has NaN; 0 is no edge, all else is"),
            ("attr_*", x.shape[0] != n, f"has {x.shape[0]} rows, but the graph has {n} nodes"),
            ("attr_*", x.shape[1] == 0, "has no columns, but a node needs at least one feature"),
            ("labels", len(labels) != n, f"has {len(labels)} entries, but the graph has {n} nodes"),
        ):
            if wrong:
                self.refuse(array, what)
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
        if "attr_matrix" in self.members:
            return self.finite("attr_matrix", self.array("attr_matrix", kinds="iufb", dimensions=2))
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
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
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
        if names is None or labels.dtype.kind not in "iu":
            if labels.dtype.kind == "i" and (labels < NO_LABEL).any():
                below = labels[labels < NO_LABEL][0]
                self.refuse("labels", f"has {below}; they go from 0 on, and -1 is none")
            y, found = encode(pl.Series(labels).cast(pl.String).set(pl.Series(~known), None))
            if what := too_many(len(found), int(known.sum())):
                self.refuse("labels", what)
            return y, found
        wrong = np.flatnonzero(known & ((labels < 0) | (labels >= len(names))))
        if len(wrong):
            self.refuse(
                "labels", f"is {labels[wrong[0]]} at [{wrong[0]}], but class_names has {len(names)}"
            )
        self.refuse_repeated("class_names", names)
        return labels.astype(np.int64), [str(name) for name in names]

    def node_ids(self, n: int) -> list[str] | NDArray[np.integer]:
        """The names, which stay numbers if they are; without names the positions."""
        names = self.optional("node_names")
        if names is None:
            return np.arange(n)
        if len(names) != n:
            self.refuse("node_names", f"has {len(names)} entries, but the graph has {n} nodes")
        self.refuse_repeated("node_names", names)
        return names.astype(np.int64) if names.dtype.kind in "iu" else names.tolist()

    def matrix(self, prefix: str) -> sparse.csr_array:
        """The CSR matrix ``<prefix>_*``, its structure checked."""
        data = self.array(f"{prefix}_data", kinds="iufb", dimensions=1)
        if data.dtype == np.float16:  # which scipy does not take
            data = data.astype(np.float32)
        indices, indptr, shape = (
            self.array(f"{prefix}_{part}", kinds="iu", dimensions=1)
            for part in ("indices", "indptr", "shape")
        )
        if len(shape) != 2:
            self.refuse(f"{prefix}_shape", f"is {shape.tolist()}, but must be two counts")
        if len(indptr) and indptr[-1] != len(indices):  # scipy would leave out the others
            self.refuse(f"{prefix}_indptr", f"must rise from 0 to {len(indices)}")
        try:
            matrix = sparse.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
            matrix.check_format(full_check=True)
        except (ValueError, OverflowError, MemoryError) as error:
            self.refuse(f"{prefix}_*", f"is not a CSR matrix: {error}")
        return matrix

    def array(self, name: str, *, kinds: str, dimensions: int) -> NDArray[Any]:
        """A needed array, of a kind (numpy's letters) and dimension that can be right."""
        if name not in self.members:
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
        if name not in self.members or self.stored(name) is None:
            return None
        return self.array(name, kinds="iuU", dimensions=1)

    def stored(self, name: str) -> NDArray[Any] | None:
        """The array of the bytes that are there; None if it would have to be unpickled."""
        member = self.members[name]
        try:
            with self.archive.open(member) as file:
                first = npy.read_magic(file) == (1, 0)
                header = (npy.read_array_header_1_0 if first else npy.read_array_header_2_0)(file)
                shape, _, dtype = header
                if dtype.hasobject:
                    return None
                if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
                    raise ValueError("numpy would make room for as much as the header says")
            with self.archive.open(member) as file:
                return npy.read_array(file, allow_pickle=False)
        except Exception:  # a damaged one can be wrong in any way
            self.refuse(name, "cannot be read")

    def refuse_repeated(self, array: str, names: NDArray[Any]) -> None:
        if (twice := repeated(names)) is not None:
            self.refuse(array, f"has {shown(twice)} twice")

    def refuse(self, array: str, what: str) -> NoReturn:
        raise DataError(f"{self.path}: array {array} {what}.") from None
