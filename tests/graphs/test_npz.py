import io
import zipfile

import numpy as np
import pytest
import torch

from fedcover.errors import DataError
from fedcover.graphs import read_npz

GRAPH = {
    "adj_data": np.ones(3, np.float32),
    "adj_indices": np.array([1, 2, 0]),
    "adj_indptr": np.array([0, 1, 2, 3, 3]),
    "adj_shape": np.array([4, 4]),
    "attr_data": np.array([0.5, 2.0, 3.0]),
    "attr_indices": np.array([0, 19, 1]),
    "attr_indptr": np.array([0, 2, 2, 2, 3]),
    "attr_shape": np.array([4, 20]),
    "labels": np.array([1, 0, 1, 1]),
    "class_names": np.array(["cat", "dog"]),
}


class Bomb:
    """Goes off if anyone unpickles it."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


def save(path, **changes):
    arrays = {k: v for k, v in (GRAPH | changes).items() if v is not None}
    np.savez(path / "own.npz", **arrays)
    return path / "own.npz"


def test_by_hand(tmp_path):
    graph = read_npz(save(tmp_path))
    assert graph.name == "own"
    assert graph.x.layout == torch.sparse_csr
    assert graph.x.to_dense()[0, [0, 1, 19]].tolist() == [0.5, 0, 2]
    assert graph.x.to_dense()[3, 1] == 3
    assert graph.edge_index.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    assert graph.y.tolist() == [1, 0, 1, 1]
    assert graph.label_names == ["cat", "dog"]
    assert graph.node_ids.tolist() == [0, 1, 2, 3]


def test_stored_zeros_are_no_edges(tmp_path):
    assert read_npz(save(tmp_path, adj_data=np.array([1, 0, 1]))).num_edges == 4


def test_numbers_of_half_precision_are_read(tmp_path):
    half = {name: GRAPH[name].astype(np.float16) for name in ("adj_data", "attr_data")}
    graph = read_npz(save(tmp_path, **half))
    assert graph.edge_index.equal(read_npz(save(tmp_path)).edge_index)
    assert graph.x.to_dense()[0, [0, 19]].tolist() == [0.5, 2]


def test_dense_features_text_labels_and_names(tmp_path):
    graph = read_npz(
        save(
            tmp_path,
            attr_data=None,
            attr_matrix=np.arange(8).reshape(4, 2),
            labels=np.array(["dog", "ant", "dog", "bee"]),
            class_names=None,
            node_names=np.array(["k", "l", "m", "n"]),
        )
    )
    assert graph.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert graph.label_names == ["ant", "bee", "dog"]
    assert graph.y.tolist() == [2, 0, 2, 1]
    assert graph.node_ids == ["k", "l", "m", "n"]


def test_labels_without_names_are_counted(tmp_path):
    graph = read_npz(save(tmp_path, labels=np.array([30, 4, 4, 30]), class_names=None))
    assert graph.label_names == ["4", "30"]
    assert graph.y.tolist() == [1, 0, 0, 1]


def test_pickled_names_are_left_aside(tmp_path):
    names = np.array([Bomb(), Bomb()], dtype=object)
    graph = read_npz(save(tmp_path, class_names=names, node_names=names))
    assert graph.label_names == ["0", "1"]
    assert graph.node_ids.tolist() == [0, 1, 2, 3]


BAD = {
    "no adjacency": ({"adj_indptr": None}, "array adj_indptr is missing."),
    "no features": ({"attr_data": None}, "array attr_data is missing."),
    "no labels": ({"labels": None}, "array labels is missing."),
    "pickled labels": (
        {"labels": np.array([Bomb()] * 4, dtype=object)},
        "array labels is stored as a pickled object, which is never loaded.",
    ),
    "pickled features": (
        {"attr_data": np.array([Bomb()] * 3, dtype=object)},
        "attr_data is stored",
    ),
    "adjacency with NaN": (
        {"adj_data": np.array([1, np.nan, 1])},
        "array adj_* has NaN; 0 is no edge, any other number is one.",
    ),
    "label below none": (
        {"labels": np.array([0, -100, 1, 0]), "class_names": None},
        "array labels has -100; labels are numbers from 0 on, and -1 is none.",
    ),
    "labels of floats": ({"labels": np.ones(4)}, "array labels has the wrong type float64."),
    "labels too few": ({"labels": np.array([0, 1])}, "array labels has 2 rows; the graph has 4"),
    "labels in a matrix": ({"labels": np.eye(4, dtype=int)}, "array labels has 2 dimensions"),
    "one label": ({"labels": np.zeros(4, int)}, "labels has the same label, cat, for every no"),
    "label without name": ({"labels": np.array([0, 1, 2, 0])}, "labels has 2 at position 2; its"),
    "negative label": ({"labels": np.array([0, -2, 1, 0])}, "since class_names has 2 names."),
    "edge out of range": (
        {"adj_indices": np.array([1, 4, 0])},
        "array adj_* is not a CSR matrix: indices must be < 4.",
    ),
    "negative edge": (
        {"adj_indices": np.array([1, -1, 0])},
        "array adj_* is not a CSR matrix: indices must be >= 0.",
    ),
    "feature out of range": (
        {"attr_indices": np.array([0, 20, 1])},
        "array attr_* is not a CSR matrix: indices must be < 20.",
    ),
    "indptr length": (
        {"adj_indptr": np.array([0, 3])},
        "adj_* is not a CSR matrix: index pointer size 2 should be 5.",
    ),
    "indptr falls": (
        {"adj_indptr": np.array([0, 2, 1, 3, 3])},
        "adj_* is not a CSR matrix: indptr must be a non-decreasing sequence.",
    ),
    "indptr end": ({"adj_indptr": np.array([0, 1, 2, 2, 2])}, "adj_indptr must rise from 0 to 3"),
    "data length": ({"attr_data": np.ones(2)}, "attr_* is not a CSR matrix: indices and data"),
    "shape of three": ({"adj_shape": np.array([4, 4, 1])}, "adj_shape is [4, 4, 1], but must be"),
    "not square": ({"adj_shape": np.array([4, 5])}, "adj_* has the shape (4, 5); it must be"),
    "more feature rows": (
        {"attr_shape": np.array([5, 20]), "attr_indptr": np.array([0, 2, 2, 2, 3, 3])},
        "attr_* has 5 rows; the graph has 4 nodes",
    ),
    "no feature columns": (
        {"attr_data": None, "attr_matrix": np.zeros((4, 0))},
        "attr_* has the shape (4, 0); it must be (nodes, features).",
    ),
    "feature nan": (
        {"attr_data": np.array([1, np.nan, 1])},
        "attr_* has a value that is not a finite float32 nu",
    ),
    "feature too large": (
        {"attr_data": None, "attr_matrix": np.array([[1e39], [0], [0], [0]])},
        "array attr_* has a value that is not a finite float32 number.",
    ),
    "no nodes": (
        {"adj_shape": np.zeros(2, int), "adj_indptr": np.zeros(1, int)}
        | {k: np.zeros(0, int) for k in ("adj_data", "adj_indices")},
        "attr_* has 4 rows; the graph has 0 nodes.",
    ),
    "names too few": (
        {"node_names": np.array(["a"])},
        "node_names has 1 entries; the graph has 4 n",
    ),
    "names repeated": (
        {"node_names": np.array([1, 2, 3, 1])},
        "node_names has '1' twice",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays(tmp_path, case):
    changes, fragment = BAD[case]
    path = save(tmp_path, **changes)
    with pytest.raises(DataError) as caught:
        read_npz(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: array ")
    assert fragment in message
    assert "\n" not in message


@pytest.mark.parametrize("content", [b"", b"id,label\n", b"PK\x03\x04 cut short", b"\x80\x04N."])
def test_not_an_npz(tmp_path, content):
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"own\.npz is not a readable npz file\.$"):
        read_npz(path)


def test_a_single_array(tmp_path):
    with (tmp_path / "own.npz").open("wb") as file:
        np.save(file, np.eye(3))
    with pytest.raises(DataError, match=r"own\.npz is not a readable npz file\."):
        read_npz(tmp_path / "own.npz")


def test_damaged_member(tmp_path):
    path = save(tmp_path)
    content = bytearray(path.read_bytes())
    place = content.index(b"adj_data.npy")
    content[place + 150 : place + 154] = b"\xff\xff\xff\xff"  # its checksum no longer fits
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"own\.npz: array adj_data cannot be read\."):
        read_npz(path)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.npz does not exist\."):
        read_npz(tmp_path / "none.npz")


def archive(path, members):
    with zipfile.ZipFile(path / "own.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path / "own.npz"


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


MEMBERS = {f"{name}.npy": npy(array) for name, array in GRAPH.items()}


def test_an_archive_by_hand_is_read(tmp_path):
    assert read_npz(archive(tmp_path, MEMBERS)).num_nodes == 4


@pytest.mark.parametrize("name", ["../labels.npy", "/etc/labels.npy", "a/b.npy", "a\\b.npy"])
def test_names_with_a_path_are_refused(tmp_path, name):
    with pytest.raises(DataError, match=r"own\.npz holds .*; arrays have names without a path\."):
        read_npz(archive(tmp_path, MEMBERS | {name: MEMBERS["labels.npy"]}))


def test_a_bomb_is_refused_by_its_list_of_contents(tmp_path):
    path = archive(tmp_path, MEMBERS | {"attr_matrix.npy": npy(np.zeros((4, 2_500_000)))})
    assert path.stat().st_size < 200_000
    with pytest.raises(DataError, match=r"own\.npz unpacks to more than 67,108,864 bytes"):
        read_npz(path)


def test_a_header_that_asks_for_more_than_there_is(tmp_path):
    huge = MEMBERS["labels.npy"].replace(b"(4,), }" + b" " * 12, b"(4000000000000,), }")
    assert huge != MEMBERS["labels.npy"]
    with pytest.raises(DataError, match="array labels cannot be read"):
        read_npz(archive(tmp_path, MEMBERS | {"labels.npy": huge}))


def test_a_label_of_minus_one_or_empty_text_is_none(tmp_path):
    for names in (None, np.array(["cat", "dog"])):
        graph = read_npz(save(tmp_path, labels=np.array([1, 0, -1, 1]), class_names=names))
        assert graph.y.tolist() == [1, 0, -1, 1]
        assert len(graph.label_names) == 2
    labels = np.array(["dog", " ", "dog ", "cat"])
    graph = read_npz(save(tmp_path, labels=labels, class_names=None))
    assert graph.y.tolist() == [1, -1, 1, 0]
    assert graph.label_names == ["cat", "dog"]
    for wrong, sentence in (
        (
            [-1, -1, -1, -1],
            "array labels has no label, only -1, which stands for none; there must be at least 2.",
        ),
        ([1, -1, 1, 1], "for every node that has one (-1 is none); there must be at least 2."),
        (
            [1, 0, -2, 1],
            "at position 2; its numbers go from 0 to at most 1, since class_names has 2 names.",
        ),
    ):
        with pytest.raises(DataError) as caught:
            read_npz(save(tmp_path, labels=np.array(wrong)))
        assert str(caught.value).endswith(sentence)


def test_repeated_names_are_refused(tmp_path):
    for changes, array, name in (
        ({"class_names": np.array(["cat", "cat"])}, "class_names", "'cat'"),
        ({"node_names": np.array([3, 1, 2, 3])}, "node_names", "'3'"),
        ({"node_names": np.array(list("abca"))}, "node_names", "'a'"),
    ):
        with pytest.raises(DataError) as caught:
            read_npz(save(tmp_path, **changes))
        sentence = f"array {array} has {name} twice; every name must stand for one thing."
        assert str(caught.value).endswith(sentence)


def test_features_are_not_more_than_the_file_can_speak_for(tmp_path):
    assert read_npz(save(tmp_path, attr_shape=np.array([4, 2**20]))).x.shape == (4, 2**20)
    path = save(tmp_path, attr_shape=np.array([4, 2**20 + 1]))
    with pytest.raises(DataError) as caught:
        read_npz(path)
    assert str(caught.value) == (
        f"{path}: array attr_shape says that there are 1,048,577 features, more than the 1,048,576 "
        f"that a file of {path.stat().st_size:,} bytes may have."
    )


def test_measured_values_are_no_classes(tmp_path):
    n = 101
    arrays = {"adj_data": [], "adj_indices": np.array([], int), "adj_indptr": np.zeros(n + 1, int)}
    arrays |= {"adj_shape": [n, n], "attr_data": None, "attr_matrix": np.ones((n, 1))}
    path = save(tmp_path, labels=np.arange(n), class_names=None, **arrays)
    with pytest.raises(DataError, match="labels has 101 different values for 101 nodes, too many"):
        read_npz(path)
