import pickle
from collections import defaultdict

import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.io import read_planetoid_data

from fedcover.errors import DataError
from fedcover.graphs.planetoid import read_planetoid


class Bomb:
    """Goes off if anyone unpickles it."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


OLD_SPELLINGS = {
    b"cnumpy._core.multiarray\n": b"cnumpy.core.multiarray\n",
    b"cscipy.sparse._csr\n": b"cscipy.sparse.csr\n",
    b"cbuiltins\nlist\n": b"c__builtin__\nlist\n",
}


def dump(path, value, old=True):
    """Pickle with the names that the real files of 2016 use, or with today's."""
    content = pickle.dumps(value, protocol=3)
    for today, then in OLD_SPELLINGS.items():
        content = content.replace(today, then) if old else content
    path.write_bytes(content)


@pytest.fixture
def small(tmp_path):
    """Five nodes, three of them in allx; test.index swaps the others and leaves a gap at 4."""
    one_hot = np.eye(3, dtype=np.int32)
    dump(tmp_path / "ind.citeseer.allx", sparse.csr_matrix(np.eye(3, 40)))
    dump(tmp_path / "ind.citeseer.tx", sparse.csr_matrix(np.eye(2, 40, k=10)))
    dump(tmp_path / "ind.citeseer.ally", one_hot[[0, 1, 2]])
    dump(tmp_path / "ind.citeseer.ty", one_hot[[1, 2]])
    graph = defaultdict(list, {0: [1, 1, 5], 1: [0, 1], 5: [0], 3: [2], 2: [3], 4: []})
    dump(tmp_path / "ind.citeseer.graph", graph)
    (tmp_path / "ind.citeseer.test.index").write_text("5\n3\n")
    dump(tmp_path / "ind.citeseer.x", sparse.csr_matrix(np.eye(1, 40)))
    dump(tmp_path / "ind.citeseer.y", one_hot[[0]])
    return tmp_path


def test_by_hand(small):
    graph = read_planetoid(small, "citeseer")
    assert graph.x.layout == torch.sparse_csr
    rows, columns = np.nonzero(graph.x.to_dense().numpy())
    assert rows.tolist() == [0, 1, 2, 3, 5]
    assert columns.tolist() == [0, 1, 2, 11, 10]
    assert graph.y.tolist() == [0, 1, 2, 2, 0, 1]
    assert graph.edge_index.tolist() == [[0, 0, 1, 2, 3, 5], [1, 5, 0, 3, 2, 0]]


@pytest.mark.parametrize("part", ["allx", "tx", "ally", "ty", "graph"])
def test_a_pickle_that_runs_code_is_refused(small, part):
    dump(small / f"ind.citeseer.{part}", Bomb())
    with pytest.raises(DataError) as caught:
        read_planetoid(small, "citeseer")
    assert f"ind.citeseer.{part} is refused" in str(caught.value)
    assert "asks for builtins.exec" in str(caught.value)


@pytest.mark.parametrize(
    ("part", "content", "fragment"),
    [
        ("allx", b"", "allx is not a readable Planetoid file."),
        ("allx", b"not a pickle", "allx is not a readable Planetoid file"),
        ("allx", np.eye(3), "allx does not hold a sparse matrix."),
        ("ally", [1, 2], "ally does not hold a matrix of labels."),
        ("graph", [1, 2], "graph does not hold lists of neighbours."),
        ("graph", {0: [99]}, "graph has an edge to a node outside 0 … 5."),
        ("graph", {0: [-1]}, "graph has an edge to a node outside 0 … 5."),
        ("test.index", b"5\nx\n", "test.index must hold one node number a line."),
        ("test.index", b"5\n5\n", "test.index must hold distinct node numbers."),
        ("test.index", b"", "test.index must hold distinct node numbers."),
        ("test.index", b"5\n4\n", "test.index does not fit allx, tx and ty."),
    ],
)
def test_damaged(small, part, content, fragment):
    path = small / f"ind.citeseer.{part}"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        dump(path, content)
    with pytest.raises(DataError) as caught:
        read_planetoid(small, "citeseer")
    assert fragment in str(caught.value)
    assert str(small) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["allx", "graph", "test.index"])
def test_missing_file(small, part):
    (small / f"ind.citeseer.{part}").unlink()
    with pytest.raises(DataError, match=rf"ind\.citeseer\.{part} does not exist\."):
        read_planetoid(small, "citeseer")


def test_todays_spellings(small):
    dump(small / "ind.citeseer.allx", sparse.csr_matrix(np.eye(3, 40)), old=False)
    dump(small / "ind.citeseer.graph", defaultdict(list, {0: [5]}), old=False)
    graph = read_planetoid(small, "citeseer")
    assert graph.edge_index.tolist() == [[0, 5], [5, 0]]
    assert graph.x.to_dense()[2].argmax() == 2


@pytest.mark.data
@pytest.mark.parametrize("title", ["Cora", "CiteSeer", "PubMed"])
def test_agrees_with_pyg(data_dir, title):
    folder, name = data_dir / title / "raw", title.lower()
    ours, theirs = read_planetoid(folder, name), read_planetoid_data(str(folder), name)
    assert torch.equal(ours.x.to_dense(), theirs.x)
    assert torch.equal(ours.y, theirs.y)
    order = np.lexsort(theirs.edge_index.numpy()[::-1])
    assert torch.equal(ours.edge_index, theirs.edge_index[:, order])


def test_lists_of_neighbours_that_are_shared_are_refused(small):
    shared = [1] * 2000
    dump(small / "ind.citeseer.graph", dict.fromkeys(range(5), shared))
    with pytest.raises(DataError, match=r"graph does not hold lists of neighbours\."):
        read_planetoid(small, "citeseer")
