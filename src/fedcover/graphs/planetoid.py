"""The Planetoid files (Yang et al., 2016): pickles, read without trusting them.

A pickle can run any code. These hold only arrays, CSR matrices, lists and a dictionary, so the
reader admits the handful of names that build those and refuses a file that asks for another.
"""

import pickle
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError
from fedcover.graphs.assemble import assemble

_ARRAY = np.empty(0).__reduce__()[0]  # the function that pickled arrays are rebuilt with
_ADMITTED: dict[tuple[str, str], Any] = {
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): defaultdict,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _ARRAY,
    ("scipy.sparse.csr", "csr_matrix"): scipy.sparse.csr_matrix,
    # The same, as files saved again today spell it.
    ("builtins", "list"): list,
    ("numpy._core.multiarray", "_reconstruct"): _ARRAY,
    ("scipy.sparse._csr", "csr_matrix"): scipy.sparse.csr_matrix,
}


class _Unpickler(pickle.Unpickler):
    """Builds arrays, matrices, lists and dictionaries, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"asks for {module}.{name}")
        return _ADMITTED[module, name]


def read_planetoid(folder: str | Path, name: str) -> Data:
    """Read ``ind.<name>.*`` as PyG's ``read_planetoid_data`` does.

    Test nodes are put back at the places that ``test.index`` gives. Where it has gaps (15 nodes
    of CiteSeer), the nodes there have no features and the first label.
    """
    folder = Path(folder)
    paths = {part: folder / f"ind.{name}.{part}" for part in ("allx", "tx", "ally", "ty", "graph")}
    allx, tx = _matrix(paths["allx"]), _matrix(paths["tx"])
    ally, ty = _one_hot(paths["ally"]), _one_hot(paths["ty"])
    test = _test_index(folder / f"ind.{name}.test.index")
    nodes = int(test.max()) + 1
    if len(test) != tx.shape[0] or len(test) != len(ty) or test.min() != allx.shape[0]:
        raise DataError(f"{folder / f'ind.{name}.test.index'} does not fit allx, tx and ty.")

    features = scipy.sparse.vstack([allx, tx]).tocoo()
    place = np.concatenate([np.arange(allx.shape[0]), test])
    shape = (nodes, allx.shape[1])
    x = scipy.sparse.csr_array((features.data, (place[features.row], features.col)), shape=shape)
    y = np.zeros(nodes, dtype=np.int64)
    y[place] = np.concatenate([ally, ty]).argmax(axis=1)
    return assemble(
        x,
        _edges(paths["graph"], nodes),
        y,
        name=name,
        label_names=[str(label) for label in range(ally.shape[1])],
        node_ids=np.arange(nodes),
    )


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old pickles use spellings that numpy deprecates
            return _Unpickler(file, encoding="latin1").load()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except pickle.UnpicklingError as error:
        raise DataError(f"{path} is refused as a Planetoid file: it {error}.") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{path} is not a readable Planetoid file.") from error


def _matrix(path: Path) -> Any:
    stored = _load(path)
    try:
        parts = (stored.data, stored.indices, stored.indptr)
        matrix = scipy.sparse.csr_array(parts, shape=stored.shape, dtype=np.float32)
        matrix.check_format(full_check=True)
    except Exception as error:
        raise DataError(f"{path} does not hold a sparse matrix.") from error
    return matrix


def _one_hot(path: Path) -> NDArray[Any]:
    stored = _load(path)
    if not isinstance(stored, np.ndarray) or stored.ndim != 2 or stored.dtype.kind not in "iuf":
        raise DataError(f"{path} does not hold a matrix of labels.")
    return stored


def _edges(path: Path, nodes: int) -> NDArray[np.int64]:
    neighbours = _load(path)
    try:
        degree = [len(targets) for targets in neighbours.values()]
        source = np.repeat(np.fromiter(neighbours.keys(), dtype=np.int64), degree)
        target = np.concatenate([np.asarray(row, dtype=np.int64) for row in neighbours.values()])
        edges = np.stack([source, target])
    except Exception as error:
        raise DataError(f"{path} does not hold lists of neighbours.") from error
    if edges.min(initial=0) < 0 or edges.max(initial=0) >= nodes:
        raise DataError(f"{path} has an edge to a node outside 0 … {nodes - 1}.")
    return edges


def _test_index(path: Path) -> NDArray[np.int64]:
    try:
        index = np.array(path.read_text(encoding="ascii").split(), dtype=np.int64)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except ValueError:
        raise DataError(f"{path} must hold one node number a line.") from None
    if len(index) == 0 or len(np.unique(index)) < len(index):
        raise DataError(f"{path} must hold distinct node numbers.")
    return index
