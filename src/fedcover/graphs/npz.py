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
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from fedcover.errors import DataError, shown
from fedcover.files import check_regular
from fedcover.graphs.compressed import allowed, check_expansion
from fedcover.graphs.convert import from_scipy

_FEATURE = 64  # bytes that a model has for a feature, whether the file has a value for it or not
# The arrays that become the arguments of from_scipy.
_ARRAYS = {"adjacency": "adj_*", "x": "attr_*", "y": "labels"} | {
    "label_names": "class_names",
    "node_ids": "node_names",
}


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
        adjacency, x = self.matrix("adj"), self.features()
        labels = self.array("labels", kinds="iuUb", dimensions=1)
        class_names, node_names = self.optional("class_names"), self.optional("node_names")
        if labels.dtype.kind not in "iu":
            class_names = None  # the labels are names
        if labels.dtype.kind == "b":
            labels = np.where(labels, "true", "false")
        names: Any = {"label_names": class_names, "node_ids": node_names, "name": self.path.stem}
        try:
            graph = from_scipy(adjacency, x, labels, **names)
        except DataError as error:
            argument, what = str(error).removesuffix(".").split(" ", 1)
            self.refuse(_ARRAYS[argument], what.replace("label_names", "class_names"))
        if node_names is not None and node_names.dtype.kind in "iu":
            graph.node_ids = node_names.astype(np.int64)
        return graph

    def features(self) -> sparse.csr_array | NDArray[np.floating]:
        if "attr_matrix" in self.members:
            return self.array("attr_matrix", kinds="iufb", dimensions=2)
        matrix, size = self.matrix("attr"), self.path.stat().st_size
        if matrix.shape[1] > (most := allowed(size) // _FEATURE):
            what = f"says that there are {matrix.shape[1]:,} features, more than the {most:,} that"
            self.refuse("attr_shape", f"{what} a file of {size:,} bytes may have")
        return matrix

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
                read_header = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
                shape, _, dtype = read_header(file)
                if dtype.hasobject:
                    return None
                if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
                    raise ValueError("numpy would make room for as much as the header says")
            with self.archive.open(member) as file:
                return npy.read_array(file, allow_pickle=False)
        except Exception:  # a damaged one can be wrong in any way
            self.refuse(name, "cannot be read")

    def refuse(self, array: str, what: str) -> NoReturn:
        raise DataError(f"{self.path}: array {array} {what}.") from None
