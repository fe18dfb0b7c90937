"""A graph cut into parties' folders, and put together again without the edges between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from torch_geometric.data import Data

from fedcover.errors import DataError, UsageError
from fedcover.graphs import load
from fedcover.graphs.assemble import feature_matrix, undirected
from fedcover.graphs.partition import partition
from fedcover.graphs.readers import read_folder
from fedcover.graphs.sites import (
    SCHEMA_FILE,
    common_schema,
    copy_sites,
    site_folders,
    write_sites,
)
from fedcover.graphs.splits import split


@pytest.fixture
def cut(random_graph: Data, tmp_path: Path):
    parts = partition(random_graph, 3, "random", 0)
    roles = split(parts.client, np.random.default_rng(0))
    folder = tmp_path / "sites"
    schema = write_sites(folder, random_graph, parts, roles)
    return folder, schema, parts, roles


def test_the_parts_are_the_graph_without_its_cut_edges(random_graph: Data, cut) -> None:
    folder, schema, parts, roles = cut
    again = load(folder)
    order = np.argsort(parts.client, kind="stable")
    assert again.client_names == ["site-1", "site-2", "site-3"]
    assert np.array_equal(again.client.numpy(), parts.client[order])
    assert np.array_equal(again.split.numpy(), roles[order])
    assert np.array_equal(again.y.numpy(), random_graph.y.numpy()[order])
    dense = [
        np.asarray(getattr(x, "todense", lambda x=x: x)())
        for x in map(feature_matrix, (again, random_graph))
    ]
    np.testing.assert_allclose(dense[0], dense[1][order], rtol=1e-6)
    kept = random_graph.edge_index.shape[1] - parts.cut_edges.shape[1]
    assert again.edge_index.shape[1] == kept
    assert list(again.label_names) == list(schema.labels)


def test_a_party_alone_numbers_labels_as_the_schema_has_them(cut) -> None:
    folder, schema, _, _ = cut
    nodes = pl.read_parquet(folder / "site-2" / "nodes.parquet")
    last = schema.labels[-1]
    nodes.with_columns(label=pl.lit(last)).write_parquet(folder / "site-2" / "nodes.parquet")
    alone = read_folder(folder / "site-2", schema)
    assert set(alone.y.tolist()) == {len(schema.labels) - 1}


def test_a_folder_that_is_not_empty_is_not_written_over(random_graph: Data, cut) -> None:
    folder, _, parts, roles = cut
    with pytest.raises(UsageError, match="not an empty folder"):
        write_sites(folder, random_graph, parts, roles)


def test_nothing_is_left_where_it_cannot_be_written(random_graph: Data, tmp_path: Path) -> None:
    parts = partition(random_graph, 3, "random", 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_sites(tmp_path / "file" / "sites", random_graph, parts, np.zeros(60, np.int8))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_party_with_other_features_is_named(cut) -> None:
    folder, _, _, _ = cut
    nodes = pl.read_parquet(folder / "site-3" / "nodes.parquet").rename({"x2": "y2"})
    nodes.write_parquet(folder / "site-3" / "nodes.parquet")
    with pytest.raises(DataError, match=r"site-3.*column 'x2' is missing, the agreed feature 3"):
        load(folder)


def test_without_a_schema_the_parties_labels_are_joined(cut) -> None:
    folder, schema, _, _ = cut
    (folder / SCHEMA_FILE).unlink()
    assert common_schema(site_folders(folder)).labels == schema.labels
    assert load(folder).client_names == ["site-1", "site-2", "site-3"]


def test_a_split_that_some_lack_is_refused(cut) -> None:
    folder, _, _, _ = cut
    nodes = pl.read_parquet(folder / "site-1" / "nodes.parquet").drop("split")
    nodes.write_parquet(folder / "site-1" / "nodes.parquet")
    with pytest.raises(DataError, match="site-1 has no column 'split'"):
        load(folder)


@pytest.mark.parametrize("binary", [False, True])
def test_with_all_cut_edges_as_links_the_parts_are_the_whole_graph(
    binary: bool, random_graph: Data, tmp_path: Path
) -> None:
    if binary:
        random_graph.x = (random_graph.x > 0).float()
    parts = partition(random_graph, 3, "random", 0)
    roles = split(parts.client, np.random.default_rng(0))
    write_sites(tmp_path / "sites", random_graph, parts, roles, parts.cut_edges)
    again = load(tmp_path / "sites")
    order = np.argsort(parts.client, kind="stable")
    place = np.argsort(order)
    expected = undirected(place[random_graph.edge_index.numpy()], 60)
    assert np.array_equal(again.edge_index.numpy(), expected)
    np.testing.assert_array_equal(again.x.numpy(), random_graph.x.numpy()[order])
    assert (again.listed_once, again.absent) == ({}, {})
    given = partition(again, None, "given")
    assert np.array_equal(given.client, parts.client[order])
    assert np.array_equal(given.cut_edges, undirected(place[parts.cut_edges], 60))


def test_a_share_of_the_cut_edges_and_none(random_graph: Data, tmp_path: Path) -> None:
    parts = partition(random_graph, 3, "random", 0)
    roles = split(parts.client, np.random.default_rng(0))
    some = parts.cut_edges[:, parts.cut_edges.sum(axis=0) % 2 == 0]
    write_sites(tmp_path / "some", random_graph, parts, roles, some)
    write_sites(tmp_path / "none", random_graph, parts, roles, some[:, :0])
    kept = random_graph.edge_index.shape[1] - parts.cut_edges.shape[1]
    assert load(tmp_path / "some").edge_index.shape[1] == kept + some.shape[1]
    without = load(tmp_path / "none")
    assert without.linked
    assert without.edge_index.shape[1] == kept


def test_copied_tables_are_the_same_graph_and_nothing_else_is_copied(cut, tmp_path: Path) -> None:
    folder = cut[0]
    before = load(folder)
    (folder / "site-1" / "ledger.jsonl").write_text("{}\n")
    (folder / SCHEMA_FILE).unlink()  # then the tables say what all agree on
    copy_sites(folder, tmp_path / "copies")
    after = load(tmp_path / "copies")
    assert np.array_equal(before.edge_index, after.edge_index)
    assert (feature_matrix(before) != feature_matrix(after)).sum() == 0
    assert after.node_ids == before.node_ids
    assert not list((tmp_path / "copies").rglob("ledger*"))
    assert (tmp_path / "copies" / SCHEMA_FILE).is_file()
