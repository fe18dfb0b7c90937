"""The Planetoid files (Yang et al., 2016): pickles, which are read, but never unpickled.

A pickle can run any code. These hold only arrays, CSR matrices, lists and a dictionary, which
:mod:`fedcover.graphs.pickled` spells out; a file that asks for anything else is refused.
"""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from torch_geometric.data import Data

from fedcover.errors import DataError
from fedcover.graphs.assemble import assemble
from fedcover.graphs.pickled import read_pickled
from fedcover.graphs.regular import check_regular


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
    gaps = nodes - allx.shape[0] - len(test)
    if len(test) != tx.shape[0] or len(test) != len(ty) or test.min() != allx.shape[0]:
        raise DataError(f"{folder / f'ind.{name}.test.index'} does not fit allx, tx and ty.")
    if gaps > len(test):
        raise DataError(f"{folder / f'ind.{name}.test.index'} has {gaps} gaps; it cannot be whole.")
    for part, like, other in (
        ("ally", "allx", allx.shape[0] != len(ally)),
        ("tx", "allx", tx.shape[1] != allx.shape[1]),
        ("ty", "ally", ty.shape[1:] != ally.shape[1:]),
    ):
        if other:
            raise DataError(f"{paths[part]} does not fit {like}.")

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
    check_regular(path)
    try:
        return read_pickled(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except DataError as error:
        raise DataError(f"{path} {error}.") from None
    except OSError as error:
        raise DataError(f"{path} is not a readable Planetoid file.") from error


def _matrix(path: Path) -> Any:
    stored = _load(path)
    try:
        spelt = stored.parts
        parts = tuple(spelt[name] for name in ("data", "indices", "indptr"))
        shape = tuple(int(size) for size in spelt.get("_shape") or spelt["shape"])
        if len(parts[2]) != shape[0] + 1:  # scipy would make room for as many rows as it is told
            raise ValueError
        matrix = scipy.sparse.csr_array(parts, shape=shape, dtype=np.float32)
        matrix.check_format(full_check=True)
    except Exception as error:
        raise DataError(f"{path} does not hold a sparse matrix.") from error
    if not np.isfinite(matrix.data).all():
        raise DataError(f"{path} holds a value that is not a finite float32 number.")
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
        if sum(degree) > path.stat().st_size:  # nodes share their lists
            raise ValueError
        source = np.repeat(np.fromiter(neighbours.keys(), dtype=np.int64), degree)
        target = np.concatenate([np.asarray(row, dtype=np.int64) for row in neighbours.values()])
        edges = np.stack([source, target])
    except Exception as error:
        raise DataError(f"{path} does not hold lists of neighbours.") from error
    if edges.min(initial=0) < 0 or edges.max(initial=0) >= nodes:
        raise DataError(f"{path} has an edge to a node outside 0 … {nodes - 1}.")
    return edges


def _test_index(path: Path) -> NDArray[np.int64]:
    check_regular(path)
    try:
        index = np.array(path.read_text(encoding="ascii").split(), dtype=np.int64)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (ValueError, OverflowError):
        raise DataError(f"{path} must hold one node number a line.") from None
    if len(index) == 0 or len(np.unique(index)) < len(index):
        raise DataError(f"{path} must hold distinct node numbers.")
    return index
