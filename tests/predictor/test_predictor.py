"""A predictor gives the run's own sets, at any level, and says for whom they are promised."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

import fedcover
from fedcover.conformal import GroupThreshold
from fedcover.errors import DataError, UsageError
from fedcover.graphs.assemble import assemble, feature_matrix
from fedcover.graphs.splits import Role
from fedcover.predictor.calibration import Calibration, Groups
from fedcover.predictor.files import ARRAYS, CARD, JSON, _checksum
from fedcover.predictor.known import fingerprints, hashed, salt_of
from fedcover.predictor.promise import EVERYTHING, WEIGHED, promises

METHODS = ("loc", "fed", "gen", "fed+prox+prior+mix", "fed+tuned", "central")
ALPHAS = (0.1, 0.3)


@pytest.fixture(scope="module")
def graph():
    return fedcover.load("cora")


@pytest.fixture(scope="module")
def finished(graph):
    config = fedcover.Config(
        clients=3,
        methods=METHODS,
        scores=("lac", "aps", "raps"),
        alphas=ALPHAS,
        seeds=2,
        rounds=4,
        resplits=2,
        gen={"prototypes": (5,), "shares": (0.2,), "link_rounds": 2, "vae": {"epochs": 3}},
        personal={"local_rounds": 3, "tune_rounds": 2},
    )
    return fedcover.run(graph, config)


@pytest.fixture(scope="module")
def folder(finished, tmp_path_factory):
    return finished.save(tmp_path_factory.mktemp("runs") / "cora")


@pytest.mark.parametrize("method", METHODS)
def test_the_sets_are_those_of_the_run(method, graph, finished, folder):
    predictor = fedcover.load_predictor(folder, method)
    for (score, alpha), rows in finished.sets.filter(method=method, seed=0).group_by(
        "score", "alpha"
    ):
        found = predictor.predict(graph, alpha, score, only=("test",))
        assert found["node"].to_list() == rows["node"].to_list()
        assert found["set"].to_list() == rows["set"].to_list()
        assert found["covered"].to_list() == rows["covered"].to_list()
        assert set(found["promise"]) == {"yes"}
        q_hat = finished.results.filter(method=method, seed=0, score=score, alpha=alpha)["q_hat"]
        assert predictor.q_hat(alpha, score) == pytest.approx(q_hat[0], rel=1e-6)


def test_sets_of_another_level_need_no_training_and_are_nested(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    tables = [predictor.predict(graph, alpha, "aps") for alpha in (0.02, 0.17, 0.5)]
    for wide, narrow in pairwise(tables):
        pairs = zip(wide["set"].to_list(), narrow["set"].to_list(), strict=True)
        assert all(set(small) <= set(large) for large, small in pairs)
    assert tables[0]["size"].mean() > tables[2]["size"].mean()


def test_a_threshold_is_the_rank_of_the_theorem():
    scores, client = np.arange(20, dtype=np.float32)[::-1], np.arange(20) % 2
    calibration = Calibration.of(scores, client, clients=3)
    # ⌈0.8 · (20 + 3)⌉ = 19, the 19th smallest of 0 … 19 is 18; ⌈0.95 · 23⌉ = 22 > 20.
    assert calibration.pooled(0.2, "exact").q_hat == 18.0
    assert calibration.pooled(0.05, "exact").q_hat == np.inf
    # The third client has nothing to average; of ten, the ⌈0.8 · 11⌉-th is 17 and 16.
    assert calibration.pooled(0.2, "average").q_hat == 16.5
    with pytest.raises(UsageError, match="alpha"):
        calibration.pooled(0.0, "exact")


def test_every_quantile_rule_of_the_run_is_kept(graph, tmp_path):
    rules = ("average", "exact", "mixture", "pooled", "tdigest")
    config = fedcover.Config(
        clients=4, methods=("fed",), alphas=(0.1, 0.3), seeds=1, rounds=3, quantiles=rules
    )
    finished = fedcover.run(graph, config)
    predictor = fedcover.load_predictor(finished.save(tmp_path / "run"))
    for (rule, alpha), rows in finished.sets.group_by("quantile", "alpha"):
        found = predictor.predict(graph, alpha, quantile=rule, only=("test",))
        assert found["set"].to_list() == rows["set"].to_list()
        yes = rule in ("exact", "mixture")
        assert set(found["promise"]) == {"yes" if yes else f"no: the rule {rule} has no guarantee"}
    tables = [predictor.predict(graph, alpha) for alpha in (0.05, 0.2)]  # the first rule
    assert (tables[0]["size"] >= tables[1]["size"]).all()
    with pytest.raises(UsageError, match="quantile is 'median'; this predictor was calibrated for"):
        predictor.predict(graph, quantile="median")


def test_a_group_that_is_too_small_is_told_so():
    kinds = np.array(["test", "test", "new", "unlabelled"], dtype=object)
    own = [GroupThreshold(0.5, 90, 1, 80, ""), GroupThreshold(0.7, 3, 1, 4, "", fell_back=True)]
    scores, client = np.zeros(3, np.float32), np.array([0, 0, 1])
    at = np.array([0, 1, 1, 0])

    def said(kind, member, node, group_of_node):
        groups = Groups(kind, ("a", "b"), np.array(member))
        calibration = Calibration.of(scores, client, 2, groups)
        return promises(kinds[node], at[node], group_of_node, calibration, own, "exact")

    every = np.arange(4)
    assert said("client", [0, 0, 1], every, at) == [
        "yes",
        "no: its client has too few calibration nodes",
        "no: it is new, which needs new calibration nodes",
        "if labels are missing at random",
    ]
    assert said("class", [0, 0, 1], every[:1], None) == [
        "yes, but not for each class: too few calibration nodes of b"
    ]
    # The first client has calibration nodes of both groups, the second of b alone.
    assert said("group", [0, 1, 1], every[:2], np.array([0, 0])) == [
        "yes",
        "no: its client has no calibration node of its group",
    ]


def test_a_promise_says_what_it_is_worth():
    test = np.array(["test"] * 10, dtype=object)
    calibration = Calibration.of(np.zeros(9, np.float32), np.array([0] * 8 + [1]), 2)
    there, elsewhere = np.array([0] * 8 + [1] * 2), np.ones(10, dtype=int)
    found = [calibration.pooled(0.3, "exact")]
    assert set(promises(test, there, None, calibration, found, "exact")) == {"yes"}
    assert set(promises(test, elsewhere, None, calibration, found, "exact")) == {WEIGHED}
    assert set(promises(test, elsewhere, None, calibration, found, "mixture")) == {"yes"}
    full = [calibration.pooled(0.01, "exact")]
    assert set(promises(test, there, None, calibration, full, "exact")) == {EVERYTHING}


def grown(graph, extra):
    """The graph with some more nodes, each a copy of node 0 tied to nodes 0 and 1."""
    n = int(graph.num_nodes)
    x, edges = feature_matrix(graph), graph.edge_index.numpy()
    more = np.array([[n + k for k in range(extra)] * 2, [0] * extra + [1] * extra])
    rows = np.concatenate([np.arange(n), np.zeros(extra, dtype=np.int64)])
    return assemble(
        x[rows],
        np.concatenate([edges, more], axis=1),
        np.concatenate([graph.y.numpy(), np.zeros(extra, dtype=np.int64)]),
        name="grown",
        label_names=graph.label_names,
        node_ids=[*map(str, graph.node_ids), *(f"new-{k}" for k in range(extra))],
    )


def unchanged(before, after):
    """Nodes with a promise have the probabilities that they had, but for rounding."""
    kept = after.filter(kind="test")
    assert len(kept) > 0
    old = kept.select("node").join(before, on="node", maintain_order="left")
    assert kept["confidence"].to_numpy() == pytest.approx(old["confidence"].to_numpy(), abs=1e-6)
    assert kept["set"].to_list() == old["set"].to_list()


@pytest.mark.parametrize("method", ["fed", "gen", "fed+prox+prior+mix", "central"])
def test_nodes_added_later_get_sets_but_no_promise(method, graph, folder):
    predictor = fedcover.load_predictor(folder, method)
    later = grown(graph, 2)
    found, before = predictor.predict(later), predictor.predict(graph)
    assert found.filter(kind="new")["node"].to_list() == ["new-0", "new-1"]
    assert set(found.filter(kind="new")["promise"]) == {
        "no: it is new, which needs new calibration nodes"
    }
    reached = np.zeros(int(later.num_nodes), dtype=bool)
    reached[[0, 1, -1, -2]] = True
    source, target = later.edge_index.numpy()
    for _ in range(2):
        reached[target[reached[source]]] = True
    if method != "gen":  # there, a change also spreads through generated neighbours
        far = found.with_columns(pl.Series("far", ~reached)).filter("far").drop("far")
        old = before.join(far.select("node"), on="node", maintain_order="left")
        assert far["set"].to_list() == old["set"].to_list()
        assert far["kind"].to_list() == old["kind"].to_list()
    unchanged(before, found)
    changed = found.with_columns(pl.Series("near", reached)).filter("near")
    assert not set(changed["kind"]) & {"test"}
    assert "changed" in set(changed["kind"])


def test_new_nodes_join_their_neighbours_client(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    found = predictor.predict(grown(graph, 1))
    mine = found.filter(pl.col("node").is_in([str(graph.node_ids[0]), str(graph.node_ids[1])]))
    assert found.filter(kind="new")["client"][0] in mine["client"].to_list()


def test_a_node_without_a_label_gets_a_set(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    known = predictor.known
    silent = replace(known, role=np.where(known.role == Role.TEST, -1, known.role).astype(np.int8))
    found = replace(predictor, known=silent).predict(graph, only=("unlabelled",))
    assert len(found) == (known.role == Role.TEST).sum()
    assert set(found["promise"]) == {"if labels are missing at random"}


def test_a_graph_that_does_not_fit_is_refused(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    narrow = graph.clone()
    narrow.x = torch.ones(int(graph.num_nodes), 3)
    with pytest.raises(DataError, match="cora has 3 features; the predictor was trained with 1433"):
        predictor.predict(narrow)
    strange = graph.clone()
    strange.label_names = ["Alchemy", *graph.label_names[1:]]
    with pytest.raises(DataError, match="has the label 'Alchemy'"):
        predictor.predict(strange)
    with pytest.raises(UsageError, match="calibrated for lac, aps, raps"):
        predictor.predict(graph, score="daps")
    with pytest.raises(UsageError, match="only has 'tests'"):
        predictor.predict(graph, only=("tests",))


def test_labels_in_another_order_mean_the_same(graph, folder):
    predictor = fedcover.load_predictor(folder, "fed")
    turned = graph.clone()
    turned.label_names = graph.label_names[::-1]
    turned.y = len(graph.label_names) - 1 - graph.y
    assert predictor.predict(turned).equals(predictor.predict(graph))


def rewritten(source, target, change, arrays=lambda _arrays: None):
    """A copy of a predictor with other content and the checksums that go with it."""
    target.mkdir(exist_ok=True)
    parts = unpack((source / ARRAYS).read_bytes())
    arrays(parts)
    raw = pack({name: np.ascontiguousarray(array) for name, array in parts.items()})
    (target / ARRAYS).write_bytes(raw)
    content = json.loads((source / JSON).read_text(encoding="utf-8"))
    change(content)
    content["sha256"] = {ARRAYS: hashlib.sha256(raw).hexdigest(), JSON: _checksum(content)}
    (target / JSON).write_text(json.dumps(content), encoding="utf-8")
    return target


def test_files_that_are_newer_or_damaged_are_refused(folder, tmp_path):
    source, copy = folder / "model" / "fed", tmp_path / "copy"
    for change, message in (
        (lambda text: text.replace('"format": 1', '"format": 2'), "newer fedcover"),
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda _text: "[]", "damaged"),
        (lambda _text: "[" * 100_000, "damaged"),
        (lambda text: text.replace('"temperature"', '"heat"'), "damaged: it is not what was"),
        (lambda text: text.replace("Case_Based", "Base_Cased"), "damaged: it is not what was"),
    ):
        copy.mkdir(exist_ok=True)
        (copy / ARRAYS).write_bytes((source / ARRAYS).read_bytes())
        (copy / JSON).write_text(change((source / JSON).read_text()))
        with pytest.raises(DataError, match=message):
            fedcover.load_predictor(copy)
    (copy / JSON).write_text((source / JSON).read_text())
    raw = bytearray((source / ARRAYS).read_bytes())
    raw[-1] ^= 1
    (copy / ARRAYS).write_bytes(raw)
    with pytest.raises(DataError, match=r"damaged: arrays\.safetensors beside it is not what was"):
        fedcover.load_predictor(copy)
    (copy / ARRAYS).unlink()
    os.mkfifo(copy / ARRAYS)
    with pytest.raises(DataError, match=r"arrays\.safetensors is not a regular file"):
        fedcover.load_predictor(copy)
    with pytest.raises(DataError, match="holds no predictor"):
        fedcover.load_predictor(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        fedcover.load_predictor(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no predictor for 'nothing'; it has central"):
        fedcover.load_predictor(folder, "nothing")
    with pytest.raises(DataError, match="has a predictor for 'fed', not for 'loc'"):
        fedcover.load_predictor(source, "loc")


WRONG = [
    ("labels", lambda c: c["labels"].append("more")),
    ("labels twice", lambda c: c["labels"].__setitem__(0, c["labels"][1])),
    ("clients", lambda c: c["clients"].pop()),
    ("features", lambda c: c.update(features=7)),
    ("features huge", lambda c: c.update(features=10**9)),
    ("temperature word", lambda c: c.update(temperature="a")),
    ("temperature none", lambda c: c.update(temperature=None)),
    ("hidden huge", lambda c: c["models"][0]["plan"].update(hidden=10**9)),
    ("hidden word", lambda c: c["models"][0]["plan"].update(hidden="64")),
    ("classes huge", lambda c: c["models"][0]["plan"].update(classes=10**9)),
    ("model", lambda c: c["models"][0]["plan"].update(model="gat")),
    ("sage", lambda c: c["models"][0]["plan"].update(model="sage")),
    ("no models", lambda c: c.update(models=[])),
    ("a model fewer", lambda c: c["models"].pop()),
    ("raps", lambda c: c.update(raps={"penalty": "a", "free": 1})),
    ("quantiles", lambda c: c.update(quantiles=[])),
    ("rule", lambda c: c.update(quantiles=["median"])),
    ("whole", lambda c: c.update(whole=True)),
    ("generated", lambda c: c["generated"].pop()),
    ("format", lambda c: c.update(format="1")),
    ("salt", lambda c: c.update(salt="zz")),
    ("gaps", lambda c: c.update(gaps=[10**6])),
    ("scores", lambda c: c["scores"].update(daps={"kind": "pooled", "groups": None})),
    ("kind", lambda c: c["scores"]["lac"].update(kind="town", groups=["a"])),
    ("shares", lambda c: c.update(shares=[1.0])),
]
WRONG_ARRAYS = [
    ("scores.lac.client", lambda a: a - 1),
    ("scores.lac.client", lambda a: a + 99),
    ("scores.lac.client", lambda a: a.astype(float)),
    ("scores.lac", lambda a: a[::-1]),
    ("scores.lac", lambda a: a[:-1]),
    ("known.client", lambda a: a - 5),
    ("known.role", lambda a: a + 9),
    ("known.names", lambda a: a[:0]),
    ("known.u", lambda a: a[1:]),
    ("known.print", lambda a: a.astype(np.int64)),
    ("mixture", lambda a: a - 1),
    ("mixture", lambda a: a[:, :1]),
    ("prior.0", lambda a: a[:1]),
    ("prior.0", lambda a: a * np.nan),
    ("weights.0.0.first", lambda a: a.T),
    ("weights.0.0.first", lambda a: a.astype(np.int32)),
    ("weights.0.0.second", lambda a: a * np.inf),
]


@pytest.mark.parametrize(("what", "change"), WRONG, ids=[what for what, _ in WRONG])
def test_content_that_does_not_fit_is_refused(what, change, folder, tmp_path):
    source = folder / "model" / "fed+prox+prior+mix"
    assert fedcover.load_predictor(rewritten(source, tmp_path / "same", lambda _c: None))
    with pytest.raises(DataError, match="is damaged") as refused:
        fedcover.load_predictor(rewritten(source, tmp_path / "other", change))
    assert len(str(refused.value)) < 1000, what


@pytest.mark.parametrize(("name", "change"), WRONG_ARRAYS)
def test_arrays_that_do_not_fit_are_refused(name, change, folder, tmp_path):
    source = folder / "model" / "fed+prox+prior+mix"
    other = rewritten(
        source,
        tmp_path,
        lambda _c: None,
        lambda arrays: arrays.update({name: change(arrays[name])}),
    )
    with pytest.raises(DataError, match="is damaged"):
        fedcover.load_predictor(other)


def test_the_best_method_is_taken_if_none_is_named(folder):
    assert sorted(path.name for path in (folder / "model").iterdir()) == sorted(METHODS)
    assert fedcover.load_predictor(folder).method == "fed+prox+prior+mix"


def test_the_card_and_the_files_name_no_node(graph, folder):
    where = folder / "model" / "gen"
    content = json.loads((where / JSON).read_text())
    assert content["labels"] == graph.label_names
    card = (where / CARD).read_text()
    assert "Without differential privacy" in " ".join(card.split())
    assert "| lac | exact | 0.1 |" in card
    assert "1 − α ≤ coverage ≤ 1 − α + K/(N+K)" in " ".join(card.split())
    everything = b"".join(file.read_bytes() for file in where.iterdir())
    names = [str(node).encode() for node in graph.node_ids if len(str(node)) > 6]
    assert len(names) > 100
    assert not any(name in everything for name in names)


def test_fingerprints_change_with_features_and_neighbours_alone(graph):
    salt = salt_of(graph)
    names = hashed(graph.node_ids, salt)
    before = fingerprints(graph, names, salt)
    fewer = graph.clone()
    gone = (graph.edge_index[0] == 5) | (graph.edge_index[1] == 5)
    fewer.edge_index = graph.edge_index[:, ~gone]
    touched = np.unique(graph.edge_index[:, gone].numpy())
    after = fingerprints(fewer, names, salt)
    assert np.flatnonzero(before != after).tolist() == touched.tolist()
    gap = graph.clone()
    gap.missing = torch.tensor([[7], [3]])  # where it holds a 0
    assert np.flatnonzero(before != fingerprints(gap, names, salt)).tolist() == [7]
    assert salt == salt_of(graph) != salt_of(fewer)
    assert not set(names.tolist()) & set(hashed(graph.node_ids, salt_of(fewer)).tolist())


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Patients of three wards: numbers on wide scales, words, gaps, and some without a label."""
    folder, rng, n = tmp_path_factory.mktemp("own") / "patients", np.random.default_rng(0), 240
    folder.mkdir()
    label = rng.integers(0, 3, n)
    names = np.array(["cold", "flu", "other"])
    pulse = 60 + 20 * label + rng.normal(0, 8, n)
    frame = pl.DataFrame(
        {
            "id": [f"p{k}" for k in range(n)],
            "label": [None if k % 12 == 0 else names[label[k]] for k in range(n)],
            "client": rng.choice(["north", "south", "west"], n),
            "pulse": [None if k % 17 == 0 else round(float(pulse[k]), 2) for k in range(n)],
            "income": rng.normal(40_000, 9_000, n).round(0),
            "ward": rng.choice(["a", "b"], n),
        }
    )
    frame.write_csv(folder / "nodes.csv")
    ends = rng.integers(0, n, (2, 500))
    ends = ends[:, label[ends[0]] == label[ends[1]]]
    pl.DataFrame({"source": frame["id"].gather(ends[0]), "target": frame["id"].gather(ends[1])}
    ).write_csv(folder / "edges.csv")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def own_run(tables, tmp_path_factory):
    graph = fedcover.load(tables, missing="impute")
    config = fedcover.Config(
        partition="given", methods=("fed",), seeds=1, rounds=5, alphas=(0.2,), resplits=2
    )
    finished = fedcover.run(graph, config)
    return finished, finished.save(tmp_path_factory.mktemp("runs") / "own")


def test_features_are_scaled_and_filled_as_in_training(tables, own_run):
    finished, folder = own_run
    predictor = fedcover.load_predictor(folder)
    assert predictor.scaling is not None
    assert predictor.schema is not None
    graph = fedcover.load(tables, missing="impute", schema=predictor.schema)
    found = predictor.predict(graph, 0.2, only=("test",))
    assert found["set"].to_list() == finished.sets["set"].to_list()
    silent = predictor.predict(graph, 0.2, only=("unlabelled",))
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
        found = predictor.predict(tables, alpha, score, only=("test",))
        assert found["set"].to_list() == rows["set"].to_list()
        own = finished.thresholds.filter(score=score, alpha=alpha)["q_hat"]
        kept = [one.q_hat for one in predictor.thresholds(alpha, score)]
        assert kept == pytest.approx(own.to_list())
    levels = [predictor.predict(graph, alpha, "aps") for alpha in (0.01, 0.05, 0.2, 0.4, 0.6)]
    for wide, narrow in pairwise(levels):
        pairs = zip(wide["set"].to_list(), narrow["set"].to_list(), strict=True)
        assert all(set(small) <= set(large) for large, small in pairs)


def test_a_node_that_moved_to_another_client_has_changed(tables, own_run, tmp_path):
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


def test_a_gap_that_is_filled_with_zero_is_a_change(tables, own_run, tmp_path):
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
