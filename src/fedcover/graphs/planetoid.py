"""The Planetoid files (Yang et al., 2016): pickles, of which nothing that they name is called.

A pickle can run any code. These hold only arrays, CSR matrices, lists and a dictionary. A file that
asks for anything else is refused, and for what these ask for, something stands in that only keeps
what the file says; arrays are made of it afterwards, from bytes that the file has.
"""

import io
import pickle
import pickletools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError, listed
from fedcover.files import check_regular
from fedcover.graphs.assemble import assemble

_NAMES = (
    *("__builtin__.list", "collections.defaultdict", "numpy.dtype", "numpy.ndarray"),
    *("numpy.core.multiarray._reconstruct", "scipy.sparse.csr.csr_matrix"),
    # The same, as files saved again today spell it.
    *("builtins.list", "numpy._core.multiarray._reconstruct", "scipy.sparse._csr.csr_matrix"),
)
_MOST_TUPLES = 1_000  # real files have a dozen; tuples in tuples without end crash Python


def read_planetoid(folder: str | Path, name: str) -> Data:
    """Read ``ind.<name>.*`` as PyG's ``read_planetoid_data`` does.

    Test nodes are put back at the places that ``test.index`` gives. Where it has gaps (15 nodes
    of CiteSeer), the nodes there have no features and the first label.
    """
    folder = Path(folder)
    parts = ("allx", "tx", "ally", "ty", "graph", "test.index")
    paths = {part: folder / f"ind.{name}.{part}" for part in parts}
    allx, tx = _matrix(paths["allx"]), _matrix(paths["tx"])
    ally, ty = _one_hot(paths["ally"]), _one_hot(paths["ty"])
    test = _test_index(paths["test.index"])
    nodes = int(test.max()) + 1
    gaps = nodes - allx.shape[0] - len(test)
    if not (len(test) == tx.shape[0] == len(ty) and test.min() == allx.shape[0]):
        raise DataError(f"{paths['test.index']} does not fit allx, tx and ty.")
    if gaps > len(test):
        raise DataError(f"{paths['test.index']} has {gaps} gaps; it cannot be whole.")
    if len(ally) != allx.shape[0]:
        raise DataError(f"{paths['ally']} does not fit allx.")
    if tx.shape[1] != allx.shape[1]:
        raise DataError(f"{paths['tx']} does not fit allx.")
    if ty.shape[1] != ally.shape[1]:
        raise DataError(f"{paths['ty']} does not fit ally.")

    found = scipy.sparse.vstack([allx, tx]).tocoo()
    place = np.concatenate([np.arange(allx.shape[0]), test])
    cells, shape = (place[found.row], found.col), (nodes, allx.shape[1])
    x = scipy.sparse.csr_array((found.data, cells), shape=shape)
    y = np.zeros(nodes, dtype=np.int64)
    y[place] = np.concatenate([ally, ty]).argmax(axis=1)
    return assemble(
        x,
        _edges(paths["graph"], nodes),
        y,
        name=name,
        label_names=list(map(str, range(ally.shape[1]))),
        node_ids=np.arange(nodes),
    )


class Spelt(dict[Any, Any]):
    """What a pickle names, whatever it is: what it would be made of, its state and its items."""

    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[Spelt]:
        if f"{module}.{name}" not in _NAMES:
            raise pickle.UnpicklingError(f"it asks for {listed([f'{module}.{name}'])}")
        return Spelt


def read_pickled(content: bytes, name: str | Path) -> Any:
    """Lists, dictionaries, numbers, text, and :class:`Spelt` in place of everything else."""
    tuples = 0
    try:
        for opcode, argument, _ in pickletools.genops(content):
            tuples += "TUPLE" in opcode.name
            # Of the fifth protocol are buffers, for which room is made before they are read.
            if opcode.proto > 4 or opcode.name.startswith("EXT") or tuples > _MOST_TUPLES:
                raise pickle.UnpicklingError(f"it has the opcode {opcode.name}")
            if "PUT" in opcode.name and int(argument or 0) > len(content):
                raise ValueError("room would be made for that many things to remember")
        return _Unpickler(io.BytesIO(content), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        why = " ".join(str(error).rstrip(".").split())
        raise DataError(f"{name} is refused as a Planetoid file: {why}.") from error
    except Exception as error:  # a damaged one can be wrong in any way
        raise DataError(f"{name} is not a readable Planetoid file.") from error


def array_of(stored: Spelt) -> NDArray[Any]:
    """The array that a file spells, if it is one of numbers; else any exception."""
    _, shape, spelt, fortran, raw = stored.state
    dtype = np.dtype(spelt.arguments[0])
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise TypeError(f"arrays of {dtype} are not read")
    content = raw.encode("latin1") if isinstance(raw, str) else raw
    flat = np.frombuffer(content, dtype=dtype.newbyteorder(spelt.state[1]))
    return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="))


def _content(path: Path) -> bytes:
    check_regular(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except OSError as error:
        raise DataError(f"{path} is not a readable Planetoid file.") from error


@contextmanager
def _unpickled(path: Path, what: str) -> Iterator[Any]:
    """What a file holds; any exception shows that it is something else."""
    stored = read_pickled(_content(path), path)
    try:
        yield stored
    except Exception as error:
        raise DataError(f"{path} does not hold {what}.") from error


def _matrix(path: Path) -> Any:
    with _unpickled(path, "a sparse matrix") as stored:
        spelt = stored.state
        parts = tuple(array_of(spelt[name]) for name in ("data", "indices", "indptr"))
        shape = tuple(int(size) for size in spelt.get("_shape") or spelt["shape"])
        if len(parts[2]) != shape[0] + 1:  # scipy would make room for as many rows as it is told
            raise ValueError
        matrix = scipy.sparse.csr_array(parts, shape=shape, dtype=np.float32)
        matrix.check_format(full_check=True)
    if not np.isfinite(matrix.data).all():
        raise DataError(f"{path} holds a value that is not a finite float32 number.")
    return matrix


def _one_hot(path: Path) -> NDArray[Any]:
    with _unpickled(path, "a matrix of labels") as stored:
        labels = array_of(stored)
        if labels.ndim != 2 or labels.dtype.kind not in "iuf":
            raise ValueError
    return labels


def _edges(path: Path, nodes: int) -> NDArray[np.int64]:
    with _unpickled(path, "lists of neighbours") as neighbours:
        degree = [len(targets) for targets in neighbours.values()]
        if sum(degree) > path.stat().st_size:  # nodes share their lists
            raise ValueError
        source = np.repeat(np.fromiter(neighbours.keys(), dtype=np.int64), degree)
        target = np.concatenate([np.asarray(row, dtype=np.int64) for row in neighbours.values()])
        edges = np.stack([source, target])
    if edges.min(initial=0) < 0 or edges.max(initial=0) >= nodes:
        raise DataError(f"{path} has an edge to a node outside 0 … {nodes - 1}.")
    return edges


def _test_index(path: Path) -> NDArray[np.int64]:
    content = _content(path)
    try:
        index = np.array(content.decode("ascii").split(), dtype=np.int64)
    except (ValueError, OverflowError):
        raise DataError(f"{path} must hold one node number a line.") from None
    if len(index) == 0 or len(np.unique(index)) < len(index):
        raise DataError(f"{path} must hold distinct node numbers.")
    return index
