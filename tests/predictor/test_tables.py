"""Predictors of graphs from tables: scales, gaps, groups, clients of their own."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

import fedcover
from fedcover.errors import DataError
from fedcover.predictor.saving import CARD


def test_features_are_scaled_and_filled_as_in_training(tables, own_run):
    finished, folder = own_run
    predictor = fedcover.load_predictor(folder)
    assert predictor.scaling is not None
    assert predictor.schema is not None
    graph = fedcover.load(tables, missing="impute", schema=predictor.schema)
    found = predictor.predict(graph, 0.2, only=("test", "unlabelled"), allow_empty=True)
    assert found["node"].to_list() == finished.sets["node"].to_list()
    assert found["set"].to_list() == finished.sets["set"].to_list()
    silent = found.filter(kind="unlabelled")
    assert len(silent) == 20
    assert silent["label"].null_count() == 20


def test_the_command_reads_later_tables_by_the_schema(tables, own_run, tmp_path):
    _, folder = own_run
    later = tmp_path / "later"
    later.mkdir()
    nodes = pl.read_csv(tables / "nodes.csv").with_columns(pl.col("label").cast(pl.String))
    nodes = nodes.with_columns(pl.lit(None, pl.String).alias("label"), ward=pl.lit("b"))
    nodes.write_csv(later / "nodes.csv")
    (later / "edges.csv").write_bytes((tables / "edges.csv").read_bytes())
    for name in ("sets.csv", "sets.parquet", "sets.json"):
        result = predict(folder, later, "--missing", "impute", "--out", tmp_path / name)
        assert result.returncode == 0, result.stderr
        assert "changed" in result.stdout
    rows = pl.read_csv(tmp_path / "sets.csv")
    assert len(rows) == len(nodes)
    assert pl.read_parquet(tmp_path / "sets.parquet")["set"].list.join("; ").to_list() == [
        one or "" for one in rows["set"].to_list()
    ]
    assert len(json.loads((tmp_path / "sets.json").read_text())) == len(nodes)
    nodes.with_columns(ward=pl.lit("z")).write_csv(later / "nodes.csv")
    refused = predict(folder, later, "--missing", "impute")
    assert refused.returncode == 1
    assert "column 'ward'" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "line 2" in predict(folder, later).stderr  # a gap, without --missing impute


@pytest.mark.parametrize("calibrate", ["client", "class", "group"])
def test_groups_with_thresholds_of_their_own_keep_them(calibrate, tables, tmp_path):
    group = "ward" if calibrate == "group" else None
    graph = fedcover.load(tables, missing="impute", group=group)
    config = fedcover.Config(
        partition="given",
        methods=("fed",),
        seeds=1,
        rounds=5,
        alphas=(0.05, 0.2),
        scores=("lac", "aps"),
        resplits=2,
        calibrate=calibrate,
    )
    finished = fedcover.run(graph, config)
    predictor = fedcover.load_predictor(finished.save(tmp_path / "run"))
    card = (tmp_path / "run/model/fed" / CARD).read_text()
    assert f"every {calibrate} " in " ".join(card.split())
    for (score, alpha), rows in finished.sets.group_by("score", "alpha"):
        only = ("test", "unlabelled")
        found = predictor.predict(tables, alpha, score, only, allow_empty=True)
        assert found["set"].to_list() == rows["set"].to_list()
        own = finished.thresholds.filter(score=score, alpha=alpha)["q_hat"]
        kept = [one.q_hat for one in predictor.thresholds(alpha, score)]
        assert kept == pytest.approx(own.to_list())
    levels = [predictor.predict(graph, alpha, "aps") for alpha in (0.01, 0.05, 0.2, 0.4, 0.6)]
    for wide, narrow in pairwise(levels):
        pairs = zip(wide["set"].to_list(), narrow["set"].to_list(), strict=True)
        assert all(set(small) <= set(large) for large, small in pairs)


def test_a_graph_in_memory_may_have_its_columns_elsewhere(tables, own_run, tmp_path):
    predictor = fedcover.load_predictor(own_run[1])
    nodes = pl.read_csv(tables / "nodes.csv")
    nodes.select(reversed(nodes.columns)).write_csv(tmp_path / "nodes.csv")
    (tmp_path / "edges.csv").write_bytes((tables / "edges.csv").read_bytes())
    there = fedcover.load(tmp_path, missing="impute")
    assert there.feature_names != fedcover.load(tables, missing="impute").feature_names
    assert predictor.predict(there).equals(predictor.predict(tables))
    nodes.with_columns(ward=pl.lit("c")).write_csv(tmp_path / "nodes.csv")
    with pytest.raises(DataError, match="column 'ward' has 'c', which is not an agreed category"):
        predictor.predict(fedcover.load(tmp_path, missing="impute"))


def test_a_node_of_another_group_has_changed(tables, tmp_path, unchanged):
    graph = fedcover.load(tables, missing="impute", group="ward")
    config = fedcover.Config(
        partition="given", methods=("fed",), seeds=1, rounds=3, resplits=2, calibrate="group"
    )
    predictor = fedcover.load_predictor(fedcover.run(graph, config).save(tmp_path / "run"))
    before = predictor.predict(tables)
    node = before.filter(kind="test")["node"][0]
    nodes = pl.read_csv(tables / "nodes.csv")
    ward = nodes.filter(id=node)["ward"][0]
    other = pl.when(id=node).then(pl.lit("b" if ward == "a" else "a")).otherwise("ward")
    nodes.with_columns(ward=other).write_csv(tmp_path / "nodes.csv")
    (tmp_path / "edges.csv").write_bytes((tables / "edges.csv").read_bytes())
    after = predictor.predict(tmp_path)
    assert after.filter(node=node)["kind"].to_list() == ["changed"]
    assert (before["kind"] != after["kind"]).sum() == 1  # its neighbours look at no group
    unchanged(before, after)


def test_a_node_that_moved_to_another_client_has_changed(tables, own_run, tmp_path, unchanged):
    _, folder = own_run
    predictor = fedcover.load_predictor(folder)

    def sets_of(path):
        return predictor.predict(fedcover.load(path, missing="impute", schema=predictor.schema))

    before = sets_of(tables)
    assert set(before["kind"]) == {"train", "valid", "calib", "test", "unlabelled"}
    node, home = before.filter(kind="test").row(0)[:2]
    other = "south" if home == "west" else "west"
    nodes = pl.read_csv(tables / "nodes.csv")
    client = pl.when(id=node).then(pl.lit(other)).otherwise("client")
    nodes.with_columns(client=client).write_csv(tmp_path / "nodes.csv")
    (tmp_path / "edges.csv").write_bytes((tables / "edges.csv").read_bytes())
    after = sets_of(tmp_path)
    assert after.filter(node=node).select("client", "kind").row(0) == (other, "changed")
    unchanged(before, after)


def test_a_gap_that_is_filled_with_zero_is_a_change(tables, own_run, tmp_path, unchanged):
    predictor = fedcover.load_predictor(own_run[1])
    nodes = pl.read_csv(tables / "nodes.csv").with_columns(pl.col("pulse").fill_null(0.0))
    nodes.write_csv(tmp_path / "nodes.csv")
    (tmp_path / "edges.csv").write_bytes((tables / "edges.csv").read_bytes())
    before, after = predictor.predict(tables), predictor.predict(tmp_path)
    assert (before["kind"] != after["kind"]).any()
    unchanged(before, after)


def test_a_gap_where_none_was_in_training_is_refused(tables, own_run, tmp_path):
    predictor = fedcover.load_predictor(own_run[1])
    table = pl.read_csv(tables / "nodes.csv")
    smoker = pl.Series("smoker", np.arange(len(table)) % 2)
    for gap in (False, True):
        holes = pl.when(id="p3").then(None).otherwise("smoker") if gap else pl.col("smoker")
        table.with_columns(smoker).with_columns(smoker=holes).write_csv(tmp_path / "nodes.csv")
        (tmp_path / "edges.csv").write_bytes((tables / "edges.csv").read_bytes())
        if not gap:
            config = replace(own_run[0].config, rounds=2)
            run = fedcover.run(fedcover.load(tmp_path, missing="impute"), config)
            predictor = fedcover.load_predictor(run.save(tmp_path / "run"))
    with pytest.raises(DataError, match="node p3 has no smoker; no training node was without it"):
        predictor.predict(tmp_path)


def predict(*words):
    command = [sys.executable, "-m", "fedcover", "predict", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
