"""Refusals quote values, but not all of those that are too long."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import polars as pl
import pytest

import fedcover
from fedcover.errors import DataError, listed, shown
from fedcover.graphs.readers import read_folder

LONG = "w" * 100_000
ROWS = "id,label,split,f\nu,a,train,1\nv,b,calib,2\nw,a,test,3\n"


def test_by_hand() -> None:
    assert shown("w" * 60) == repr("w" * 60)
    assert shown("w" * 61) == repr("w" * 59 + "…")
    assert shown([1] * 100) == str([1] * 100)[:59] + "…"
    assert listed(["a", LONG]) == "a, " + "w" * 59 + "…"
    assert listed(["a"] * 20) == ", ".join("a" * 20)
    assert listed(["a"] * 1234).endswith(", a, … (1,234 in all)")


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        (ROWS + f"x,a,test,{LONG}\n", ""),  # a word among numbers
        (ROWS + f"x,a,{LONG},1\n", ""),  # no role
        (ROWS + f"{LONG},a,test,1\n{LONG},a,test,1\n", ""),  # an id twice
        (ROWS.replace(",a,", f",{LONG},").replace(",b,", f",{LONG},"), ""),  # one label
        (ROWS, f"u,{LONG}\n"),  # no node
        (ROWS.replace("f\n", f"{LONG}\n").replace("3", ""), ""),  # the name of a column
        ("id,f," + ",".join(f"c{i}" for i in range(900)) + "\n", ""),  # all of them
    ],
)
def test_refusals_of_tables_are_short(tmp_path: Path, nodes: str, edges: str) -> None:
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text("source,target\n" + edges)
    with pytest.raises(DataError) as caught:
        read_folder(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
    assert "…" in str(caught.value)
    assert len(str(caught.value)) < len(str(tmp_path)) + 400


def test_refusals_of_types_and_other_sources_are_short(tmp_path: Path) -> None:
    fields = {f"field{i}": 1 for i in range(500)}
    frame = pl.DataFrame({"id": ["u", "v"], "label": ["a", "b"], "s": [fields, fields]})
    frame.write_parquet(tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n")
    graph = networkx.Graph()
    graph.add_node(LONG, label="a", f=np.inf)
    graph.add_node("v", label="b", f=1.0)
    for call in (
        lambda: read_folder(tmp_path),
        lambda: fedcover.from_networkx(graph),
        lambda: fedcover.from_scipy(np.eye(2), np.eye(2), [LONG, "a"], label_names=["a", "b"]),
        lambda: fedcover.from_scipy(np.eye(2), np.eye(2), ["a", "b"], node_ids=[LONG, LONG]),
    ):
        with pytest.raises(DataError) as caught:
            call()
        assert "…" in str(caught.value)
        assert len(str(caught.value)) < len(str(tmp_path)) + 400
