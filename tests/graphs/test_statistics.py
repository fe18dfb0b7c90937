import csv
from pathlib import Path

import pytest

from fedcover.graphs import describe, load, missing_edges, partition
from fedcover.graphs.catalogue import DATASETS, MISSING_EDGES, GraphStats
from fedcover.graphs.statistics import list_rows, missing_edges_rows, show_rows

PUBLISHED = Path(__file__).parents[2] / "paper" / "published" / "missing_edges.csv"


@pytest.fixture
def nothing_at_hand(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDCOVER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_describe(two_triangles):
    assert describe(two_triangles) == GraphStats(nodes=6, edges=14, features=4, labels=2)


def test_missing_edges_by_hand(two_triangles):
    found = missing_edges(two_triangles, 2)
    assert (found.edges, found.missing) == (14, 2)
    assert found.percent == pytest.approx(100 / 7)


def test_missing_edges_without_edges(make_graph):
    assert missing_edges(make_graph(4), 2).percent == 0


def test_missing_edges_of_another_method(two_triangles):
    cut = partition(two_triangles, 3, "random", seed=5).cut_edges
    assert missing_edges(two_triangles, 3, 5, "random").missing == cut.shape[1]


def test_published_table_is_the_papers():
    with PUBLISHED.open() as file:
        rows = list(csv.DictReader(file))
    assert {(r["dataset"].lower(), int(r["clients"])): int(r["missing_edges"]) for r in rows} == (
        MISSING_EDGES
    )
    for row in rows:
        published = DATASETS[row["dataset"].lower()].published
        assert published is not None
        assert published.edges == int(row["edges"])
        percent = 100 * int(row["missing_edges"]) / published.edges
        assert percent == pytest.approx(float(row["missing_percent"]), abs=0.01)


def test_list_downloads_nothing(nothing_at_hand):
    rows = {row.name: row for row in list_rows()}
    assert list(rows) == list(DATASETS)
    assert rows["cora"].place == "embedded"
    assert rows["cora"].ours == GraphStats(2485, 10138, 1433, 7)
    assert rows["cora"].published == GraphStats(2485, 10138, 2485, 7)
    assert "features" in rows["cora"].note
    assert rows["pubmed"].place == "to fetch"
    assert rows["pubmed"].ours is None
    assert rows["pubmed"].published == GraphStats(19717, 88648, 500, 3)
    assert rows["cs"].published is None


def test_show(nothing_at_hand):
    whole, component, paper = show_rows("cora")
    assert whole.stats == GraphStats(2708, 10556, 1433, 7)
    assert component.stats == describe(load("cora"))
    assert paper.stats.features == 2485
    assert "features" in paper.note


def test_show_an_own_graph(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,label,a\nu,x,1\nv,y,2\nw,x,3\n")
    (tmp_path / "edges.csv").write_text("source,target\nu,v\n")
    assert [row.stats.nodes for row in show_rows(tmp_path)] == [3, 2]


@pytest.mark.data
def test_list_with_data(data_dir):
    rows = {row.name: row for row in list_rows(data_dir)}
    assert rows["citeseer"].ours == rows["citeseer"].published
    assert rows["pubmed"].ours == rows["pubmed"].published
    assert rows["computers"].ours == GraphStats(13381, 491556, 767, 10)
    assert show_rows("computers", data_dir)[0].stats == rows["computers"].published


@pytest.mark.data
def test_missing_edges_beside_the_papers(data_dir):
    """CiteSeer's cut agrees. Cora's published cut is smaller than any that METIS finds here
    (also with bisection, or the best of 20 cuts), so it is held to what we measured."""
    rows = {(row.name, row.clients): row for row in missing_edges_rows(data_dir)}
    assert list(rows) == list(MISSING_EDGES)
    for (name, _), row in rows.items():
        assert row.lowest <= row.ours.missing <= row.highest
        ratio = row.ours.missing / row.published.missing
        assert 0.9 < ratio < 1.1 if name == "citeseer" else 1.2 < ratio < 1.6
