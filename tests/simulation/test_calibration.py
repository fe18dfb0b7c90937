"""Runs that calibrate by client, class or group: sets, tables, ledger, page."""

import json

import numpy as np
import polars as pl
import pytest

from fedcover import Config, UsageError, run
from fedcover.config.names import CALIBRATIONS
from fedcover.report.page import write_run_page
from fedcover.tables import KEY

CONDITIONAL = CALIBRATIONS[1:]
SETTINGS = {
    "methods": ("loc", "fed", "central"),
    "scores": ("aps-det", "raps", "lac", "daps"),
    "seeds": 1,
    "quantiles": ("exact", "pooled"),
    "alphas": (0.1, 0.3),
}
COLUMNS = """
method, score, quantile, alpha, seed, kind, group, n_calibration, clients, q_hat, fell_back
"""


@pytest.fixture(scope="module")
def grouped(make_toy):
    """Three labels, three clients, and four groups of which one is tiny."""
    group = np.random.default_rng(1).permutation(np.repeat([0, 1, 2, 3], [50, 40, 25, 5]))
    return make_toy(group=group, group_names=["n", "e", "s", "w"])


@pytest.fixture(scope="module")
def finished(grouped, quick):
    return {kind: run(grouped, quick(**SETTINGS, calibrate=kind)) for kind in CALIBRATIONS}


def group_of(finished, kind):
    """Each node's client or group by name, of the first seed."""
    nodes, _ = finished.shown.frames()
    return dict(nodes.select("node", kind).rows())


@pytest.mark.parametrize("kind", CONDITIONAL)
def test_sets_follow_from_scores_and_thresholds(finished, kind):
    """Rebuilt from the files' content alone, label by label."""
    own = finished[kind]
    labels = own.info["graph"]["label_names"]
    first = pl.col("seed") == 0
    key = ["method", "score", "quantile", "alpha"]
    tables = own.thresholds.filter(first).partition_by(key, as_dict=True)
    thresholds = {k: dict(t.select("group", "q_hat").rows()) for k, t in tables.items()}
    scores = {
        (m, s, n): v for m, s, n, v in own.scores.select("method", "score", "node", "scores").rows()
    }
    member = None if kind == "class" else group_of(own, kind)
    rows = own.sets.filter(first).select(*key, "node", "set").rows()
    assert len(rows) == 3 * 4 * 2 * 2 * 48
    for *cell, node, held in rows:
        q = thresholds[tuple(cell)]
        values = scores[cell[0], cell[1], node]
        expected = [
            label
            for label, value in zip(labels, values, strict=True)
            if value <= q[label if member is None else member[node]]
        ]
        assert held == expected


@pytest.mark.parametrize("kind", CONDITIONAL)
def test_thresholds_are_listed_for_every_key_and_group(finished, kind):
    own = finished[kind]
    assert ", ".join(own.thresholds.columns) == " ".join(COLUMNS.split())
    groups = {"client": 3, "class": 3, "group": 4}[kind]
    assert len(own.thresholds) == len(own.results) * groups
    assert own.thresholds["kind"].unique().to_list() == [kind]
    counts = own.thresholds.group_by(KEY).agg(pl.col("n_calibration").sum())
    assert counts["n_calibration"].unique().to_list() == [48]
    assert own.results["q_hat"].null_count() == len(own.results)
    single = own.results["singleton_rate"] > 0
    assert own.results["singleton_hits"].is_not_null().equals(single.alias("singleton_hits"))
    rest = own.results.drop("q_hat", "singleton_hits", "worst_slab_coverage")
    assert rest.null_count().sum_horizontal().item() == 0


def test_by_client_everyone_is_alone_and_both_rules_agree(finished):
    thresholds = finished["client"].thresholds
    assert thresholds["clients"].unique().to_list() == [1]
    assert not thresholds["fell_back"].any()
    exact, pooled = (thresholds.filter(quantile=q)["q_hat"] for q in ("exact", "pooled"))
    assert exact.to_list() == pooled.to_list()


def test_a_group_that_is_too_small_is_not_below_the_pooled_threshold_and_a_note_says_so(finished):
    own, pooled = finished["group"], finished["pooled"]
    small = own.thresholds.filter(group="w")
    assert small["fell_back"].all()
    q_hats = small.join(pooled.results.select(*KEY, "q_hat"), on=KEY, suffix="_all")
    assert len(q_hats) == len(small)
    assert (q_hats["q_hat"] >= q_hats["q_hat_all"]).all()
    assert (q_hats["q_hat"] == q_hats["q_hat_all"]).any()
    assert not own.thresholds.filter(pl.col("group") == "n", alpha=0.3)["fell_back"].any()
    notes = [note for note in own.info["notes"] if "by group" in note]
    assert any("alpha = 0.3" in note and "w" in note for note in notes)
    assert all("this level is not promised for each of them" in note for note in notes)
    assert not [note for note in finished["client"].info["notes"] if "by client" in note]


def test_one_client_alone_is_the_pooled_rule(toy, quick):
    settings = SETTINGS | {"quantiles": ("exact",), "methods": ("fed",), "clients": 1}
    one, alone = (run(toy, quick(**settings, calibrate=kind)) for kind in ("pooled", "client"))
    dropped = ["train_seconds", "q_hat"]
    assert one.results.drop(dropped).equals(alone.results.drop(dropped))
    assert one.groups.equals(alone.groups)
    assert one.sets.equals(alone.sets)


def test_without_empty_sets_every_set_has_a_label(grouped, quick):
    for kind in CONDITIONAL:
        settings = SETTINGS | {"alphas": (0.6,), "methods": ("fed",), "empty_sets": False}
        own = run(grouped, quick(**settings, calibrate=kind))
        assert own.sets["size"].min() == 1
        assert (own.results["empty_rate"] == 0).all()


def test_pooled_is_untouched_but_for_the_groups_it_shows(finished, grouped, toy, quick):
    plain = run(toy, quick(**SETTINGS))
    pooled = finished["pooled"]
    assert pooled.thresholds is None
    assert pooled.results.drop("train_seconds").equals(plain.results.drop("train_seconds"))
    assert pooled.groups.filter(pl.col("kind") != "group").equals(plain.groups)
    assert pooled.groups.filter(kind="group")["group"].unique().sort().to_list() == [
        "e",
        "n",
        "s",
        "w",
    ]
    assert pooled.sets.equals(plain.sets)
    assert "group_names" not in plain.info["graph"]


@pytest.mark.parametrize("kind", CONDITIONAL)
def test_the_ledger_has_the_talks_of_the_groups(finished, kind):
    """256 counts a round: four of the pooled talk, four of each group that a client has.

    A group that falls back is asked for its largest score, which takes as many.
    """
    own = finished[kind]
    ledger = own.ledger.filter(method="fed", kind="quantile")
    up, down = (ledger.filter(direction=way) for way in ("up", "down"))
    assert up["shape"].to_list() == [[256]] * len(up)
    assert (ledger["round"] + ledger["rounds"]).max() == 4
    cases, groups = 4 * 2 * 2, {"client": 3, "class": 3, "group": 4}[kind]  # scores, rules, levels
    thresholds = own.thresholds.filter(method="fed")
    assert up["rounds"].sum() == 4 * (cases * 3 + thresholds["clients"].sum())
    # Down go, to each of three clients, which talks go on, and depth and prefix of each.
    asked = 4 * (cases * (1 + 2) + 2 * len(thresholds))
    assert down["rounds"].sum() == 3 * asked
    assert thresholds["fell_back"].any() == (kind == "group")
    told = own.ledger.filter(method="fed", kind="sets", direction="down")
    each = 1 if kind == "client" else groups
    assert told.select("array", "shape").rows() == [("q_hat", [cases, each])] * 3


@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_the_folder_has_a_page_that_can_be_written_again(finished, kind, tmp_path):
    folder = finished[kind].save(tmp_path / "run")
    assert (folder / "thresholds.csv").exists() == (kind != "pooled")
    page = (folder / "report.html").read_bytes()
    write_run_page(folder)
    assert (folder / "report.html").read_bytes() == page
    data = page.decode().partition('id="data">')[2].partition("</script>")[0]
    payload = json.loads(data)
    assert payload["calibrate"] == kind
    held = payload["explorer"]["thresholds"]["fed|lac|exact|0.3"]
    shown = finished[kind].thresholds
    if kind == "pooled":
        assert isinstance(held, float)
        return
    q_hats = shown.filter(method="fed", score="lac", quantile="exact", seed=0, alpha=0.3)
    expected = [round(q, 6) if np.isfinite(q) else None for q in q_hats["q_hat"]]
    if kind == "class":
        assert held == expected
    else:
        assert held == dict(zip(q_hats["group"], expected, strict=True))
    assert payload["explorer"].get("group", [])[:1] in ([], ["n"], ["e"], ["s"], ["w"])
    assert all(cell is None for cell in payload["cells"]["high"])


def test_a_folder_with_thresholds_is_replaced_by_one_without(finished, tmp_path):
    folder = finished["class"].save(tmp_path / "run")
    finished["pooled"].save(folder)
    assert not (folder / "thresholds.csv").exists()


def test_group_needs_a_graph_that_has_groups(toy, quick):
    with pytest.raises(UsageError, match="toy has no groups, which calibrate 'group' needs"):
        run(toy, quick(**SETTINGS, calibrate="group"))


@pytest.mark.parametrize("rule", ["average", "tdigest"])
@pytest.mark.parametrize("kind", CONDITIONAL)
def test_rules_with_one_threshold_for_all_are_refused(rule, kind):
    sentence = (
        f"quantiles has '{rule}', .*calibrate '{kind}' it must be one of exact, theorem1, pooled."
    )
    with pytest.raises(UsageError, match=sentence):
        Config(quantiles=("exact", rule), calibrate=kind)
    assert Config(quantiles=("exact", rule)).calibrate == "pooled"


def test_other_words_are_refused():
    with pytest.raises(
        UsageError, match="calibrate is 'clients'; it must be one of pooled, client"
    ):
        Config(calibrate="clients")


def test_a_column_of_test_shares_is_judged_client_by_client(make_toy, quick):
    """Far more test than calibration nodes at one client: by client, nothing is to be said."""
    rng = np.random.default_rng(0)
    client = np.arange(120) % 2
    draws = rng.random(120)
    split = np.where(draws < 0.3, 0, np.where(draws < np.where(client, 0.85, 0.5), 2, 3))
    graph = make_toy(client=client, client_names=["a", "b"], split=split)
    settings = SETTINGS | {"methods": ("fed",), "quantiles": ("exact",), "scores": ("lac",)}
    notes = {
        kind: " ".join(
            run(graph, quick(**settings, clients=2, partition="given", calibrate=kind)).info[
                "notes"
            ]
        )
        for kind in ("pooled", "client", "class")
    }
    assert "total variation" not in notes["pooled"]  # it counts clients by their test nodes
    assert "total variation" not in notes["client"]
    assert "total variation" in notes["class"]
