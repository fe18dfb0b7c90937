"""Fixtures that several test folders share: tiny graphs, and the folder of the other data sets."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch_geometric.data import Data

from fedcover import cli
from fedcover.graphs.assemble import assemble
from fedcover.graphs.sites import SCHEMA_FILE, common_schema, site_folders


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Several pytest workers share the cores, so that each of them keeps to one."""
    torch.set_num_threads(1)


@pytest.fixture
def calling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """``calling("run", "cora")`` gives the exit status, stdout and stderr of fedcover."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedcover", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return (int(end.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture
def data_dir() -> Path:
    """The raw files of the other graphs; a test that asks for it is skipped aloud without them."""
    folder = os.environ.get("FEDCOVER_DATA")
    if not folder:
        pytest.skip("FEDCOVER_DATA is not set, so the raw files of the other graphs are not here")
    return Path(folder)


@pytest.fixture
def make_graph() -> Callable[..., Data]:
    """Build a small graph: ``make_graph(nodes, edges, ...)``; two labels, one-hot-like features."""

    def make(nodes: int, edges: object = (), **columns: object) -> Data:
        arguments = {
            "x": np.eye(nodes, 4) + 1,
            "y": np.arange(nodes) % 2,
            "name": "tiny",
            "label_names": ["even", "odd"],
            "node_ids": np.arange(nodes),
        }
        pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        return assemble(edges=pairs, **(arguments | columns))  # type: ignore[arg-type]

    return make


@pytest.fixture
def two_triangles(make_graph: Callable[..., Data]) -> Data:
    """Nodes 0, 1, 2 and 3, 4, 5 form triangles; the edge 2 – 3 joins them."""
    return make_graph(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)])


@pytest.fixture
def random_graph() -> Data:
    """60 nodes, about 180 edges, three labels, drawn once and for all."""
    rng = np.random.default_rng(7)
    return assemble(
        rng.normal(size=(60, 5)),
        rng.integers(0, 60, size=(2, 180)),
        rng.permutation(np.arange(60) % 3),
        name="random",
        label_names=["a", "b", "c"],
        node_ids=np.arange(60),
    )


@pytest.fixture(scope="session")
def hospitals() -> Callable[..., tuple[Data, np.ndarray]]:
    """Two hospitals, the second much harder, that lack 10 % and 85 % of their labels at random:
    ``hospitals(removal)`` gives the graph, always the same, and all true labels."""

    def make(removal: int = 0, nodes: int = 1500) -> tuple[Data, np.ndarray]:
        rng, client = np.random.default_rng(11), np.repeat([0, 1], nodes)
        y = rng.integers(0, 3, 2 * nodes)
        noise = np.array([0.8, 3.0])[client]
        pairs = rng.permutation(nodes).reshape(2, -1)
        lacking = np.array([0.1, 0.85])[client]
        graph = assemble(
            1.5 * np.eye(3)[y] + noise[:, None] * rng.normal(size=(2 * nodes, 3)),
            np.concatenate([pairs, pairs + nodes], axis=1),
            np.where(np.random.default_rng([12, removal]).random(2 * nodes) < lacking, -1, y),
            name="hospitals",
            label_names=["cold", "flu", "other"],
            node_ids=np.arange(2 * nodes),
            client=client,
            client_names=["hospital 1", "hospital 2"],
        )
        return graph, y

    return make


@pytest.fixture(scope="session")
def toy_sites() -> Callable[[Path, Sequence[str]], Path]:
    """Write small parties' folders and their schema: ``toy_sites(folder, names)``."""

    def write(folder: Path, names: Sequence[str]) -> Path:
        for seed, name in enumerate(names):
            _write_site(folder / name, (28, 40, 34)[seed % 3], seed)
        schema = common_schema(site_folders(folder))
        (folder / SCHEMA_FILE).write_text(schema.to_json())
        return folder

    return write


def _write_site(folder: Path, nodes: int, seed: int) -> None:
    """Eight features, three labels that they tell apart, edges between like nodes."""
    rng = np.random.default_rng(seed)
    names = ("blue", "green", "red")
    y = np.concatenate([np.arange(3), rng.integers(0, 3, nodes - 3)])
    x = (rng.random((nodes, 8)) < 0.15).astype(float)
    x[np.arange(nodes), 2 * y] = 1
    x[:, 6:] = rng.normal(size=(nodes, 2)).round(4)  # so that no two rows are the same
    ids = np.array([f"{folder.name}-{i}" for i in range(nodes)])
    roles = np.resize(["train", "train", "valid", "calib", "calib", "test", "test"], nodes)
    ends = rng.integers(0, nodes, (2, 3 * nodes))
    ends = ends[:, y[ends[0]] == y[ends[1]]]
    folder.mkdir(parents=True)
    columns = {"id": ids, "label": [names[k] for k in y], "split": rng.permutation(roles)}
    frame = pl.DataFrame({**columns, **{f"f{j}": x[:, j] for j in range(8)}})
    frame.write_csv(folder / "nodes.csv")
    edges = pl.DataFrame({"source": ids[ends[0]], "target": ids[ends[1]]})
    edges.write_csv(folder / "edges.csv")
