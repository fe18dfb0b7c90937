"""What is on disk: whole, checked, and naming no node."""

import hashlib
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

import fedcover
from fedcover.errors import DataError, UsageError
from fedcover.predictor.loading import _rank
from fedcover.predictor.nodes import fingerprints, hashed, salt_of
from fedcover.predictor.saving import ARRAYS, CARD, JSON, card_text, checksum


def rewritten(source, target, change, arrays=lambda _arrays: None):
    """A copy of a predictor with other content and the checksums that go with it."""
    target.mkdir(exist_ok=True)
    parts = unpack((source / ARRAYS).read_bytes())
    arrays(parts)
    raw = pack({name: np.ascontiguousarray(array) for name, array in parts.items()})
    (target / ARRAYS).write_bytes(raw)
    content = json.loads((source / JSON).read_text(encoding="utf-8"))
    change(content)
    content["sha256"] = {ARRAYS: hashlib.sha256(raw).hexdigest(), JSON: checksum(content)}
    (target / JSON).write_text(json.dumps(content), encoding="utf-8")
    return target


def test_files_that_are_newer_or_damaged_are_refused(folder, tmp_path):
    source, copy = folder / "model" / "fed", tmp_path / "copy"
    for change, message in (
        (lambda text: text.replace('"format": 3', '"format": 4'), "newer fedcover"),
        (lambda text: text.replace('"format": 3', '"format": 2'), "earlier fedcover"),
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
    with pytest.raises(
        DataError, match=r"arrays\.safetensors is damaged: it is not what was written"
    ):
        fedcover.load_predictor(copy)
    (copy / ARRAYS).unlink()
    os.mkfifo(copy / ARRAYS)
    with pytest.raises(DataError, match=r"arrays\.safetensors is not a regular file"):
        fedcover.load_predictor(copy)
    with pytest.raises(DataError, match="holds no predictor"):
        fedcover.load_predictor(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        fedcover.load_predictor(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no predictor for 'nothing'; it has central"):
        fedcover.load_predictor(folder, "nothing")
    with pytest.raises(UsageError, match="has a predictor for 'fed', not for 'loc'"):
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
    ("unit features", lambda c: c["models"][0]["plan"].update(unit_features="x")),
    ("batch size", lambda c: c["models"][0]["plan"].update(batch_size="x")),
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
    ("scores", lambda c: c["scores"].update(dlac={"kind": "pooled", "groups": None})),
    ("no weights", lambda c: c["diffusion"].pop("daps")),
    ("weights of another", lambda c: c["diffusion"].update(dlac=[0.1, 0.0])),
    ("a weight below 0", lambda c: c["diffusion"].update(daps=[-0.1, 0.0])),
    ("a weight that is no number", lambda c: c["diffusion"].update(daps=[float("nan"), 0.0])),
    ("similar where none are", lambda c: c["diffusion"].update(daps=[0.1, 0.1])),
    ("three weights", lambda c: c["diffusion"].update(slac=[0.1, 0.1, 0.1])),
    ("kind", lambda c: c["scores"]["lac"].update(kind="town", groups=["a"])),
    ("shares", lambda c: c["terms"].update(shares=[1.0])),
]
WRONG_ARRAYS = [
    # The last three of a client's generated neighbours are a CSR matrix.
    ("generated.0.0", lambda a: a + 10**6),
    ("generated.0.0", lambda a: a.astype(np.int8)),
    ("generated.0.1", lambda a: a.astype(np.float64)),
    ("generated.0.2", lambda a: -a),
    ("generated.0.2", lambda a: a[1:]),
    ("generated.0.3", lambda a: a * np.nan),
    ("generated.0.3", lambda a: a.astype(np.float16)),
    ("generated.0.4", lambda a: np.full_like(a, 2**30)),
    ("generated.0.4", lambda a: -a - 1),
    ("generated.0.5", lambda a: a[::-1]),
    ("generated.0.5", lambda a: np.where(np.arange(len(a)), -1, 0).astype(a.dtype)),
    ("generated.0.5", lambda a: np.concatenate([a[:1], a[1:-1][::-1] + 5, a[-1:]])),
    ("scores.lac.client", lambda a: a - 1),
    ("scores.lac.client", lambda a: a + 99),
    ("scores.lac.client", lambda a: a.astype(float)),
    ("scores.lac.client", lambda a: a.astype(np.uint64)),
    ("scores.lac", lambda a: a[::-1]),
    ("scores.lac", lambda a: a[:-1]),
    ("known.client", lambda a: a - 5),
    ("known.client", lambda a: a.astype(np.uint64)),
    ("known.role", lambda a: a + 9),
    ("known.names", lambda a: a[:0]),
    ("known.u", lambda a: a[1:]),
    ("known.u", lambda a: a.astype(np.complex64)),
    ("known.print", lambda a: a.astype(np.int64)),
    ("known.alike", lambda a: a[1:]),
    ("known.alike", lambda a: a.astype(np.int64)),
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
    recipe = "gen" if name.startswith("generated") else "fed+prox+prior+mix"
    source = folder / "model" / recipe
    other = rewritten(
        source,
        tmp_path,
        lambda _c: None,
        lambda arrays: arrays.update({name: change(arrays[name])}),
    )
    with pytest.raises(DataError, match="is damaged"):
        fedcover.load_predictor(other)


def test_what_is_missing_is_named(folder, tmp_path):
    other = rewritten(
        folder / "model" / "fed",
        tmp_path,
        lambda _content: None,
        lambda arrays: arrays.pop("prior.0"),
    )
    with pytest.raises(DataError, match=r"is damaged: it has no 'prior\.0'\.$"):
        fedcover.load_predictor(other)


def test_several_models_without_a_mixture_are_refused(folder, tmp_path):
    other = rewritten(
        folder / "model" / "fed",
        tmp_path,
        lambda content: content["models"].append(content["models"][0]),
        lambda arrays: arrays.update(
            {
                n.replace(".0", ".1", 1): a
                for n, a in arrays.items()
                if n[:6] in ("prior.", "weight")
            }
        ),
    )
    with pytest.raises(DataError, match="is damaged: there are several models and no mixture"):
        fedcover.load_predictor(other)


def test_the_best_method_is_taken_if_none_is_named(finished, folder):
    kept = [path.name for path in (folder / "model").iterdir()]
    assert sorted(kept) == sorted(finished.config.methods)
    assert fedcover.load_predictor(folder).method == "fed+prox+prior+mix"


def test_what_nobody_can_have_is_taken_last():
    assert min(["central+prior", "loc", "gen", "central"], key=_rank) == "gen"
    ranked = sorted(["central+mix", "loc+prior", "fed", "fed+prior+mix"], key=_rank)
    assert ranked == ["fed+prior+mix", "fed", "loc+prior", "central+mix"]


def test_the_card_and_the_files_name_no_node(graph, folder):
    where = folder / "model" / "gen"
    content = json.loads((where / JSON).read_text())
    assert content["labels"] == graph.label_names
    card = (where / CARD).read_text()
    assert "Without differential privacy" in " ".join(card.split())
    assert "| lac | exact | 0.1 |" in card
    assert (
        "at most 1 − α + 2 max pₖ/nₖ, for a share pₖ and nₖ calibration nodes, where no two"
        in " ".join(card.split())
    )
    everything = b"".join(file.read_bytes() for file in where.iterdir())
    names = [str(node).encode() for node in graph.node_ids if len(str(node)) > 6]
    assert len(names) > 100
    assert not any(name in everything for name in names)


def test_a_card_promises_no_upper_end_where_sets_are_filled(folder):
    predictor = fedcover.load_predictor(folder, "fed")
    cards = [card_text(replace(predictor, empty_sets=kept)) for kept in (True, False)]
    assert ["at most" in " ".join(card.split()) for card in cards] == [True, False]


def test_fingerprints_change_with_features_and_neighbours_alone(graph):
    salt = salt_of(graph)
    names = hashed(graph.node_ids, salt)
    edges = graph.edge_index.numpy()
    before = fingerprints(graph, names, salt, edges)
    fewer = graph.clone()
    gone = (graph.edge_index[0] == 5) | (graph.edge_index[1] == 5)
    fewer.edge_index = graph.edge_index[:, ~gone]
    touched = np.unique(graph.edge_index[:, gone].numpy())
    after = fingerprints(fewer, names, salt, fewer.edge_index.numpy())
    assert np.flatnonzero(before != after).tolist() == touched.tolist()
    gap = graph.clone()
    gap.missing = torch.tensor([[7], [3]])  # where it holds a 0
    assert np.flatnonzero(before != fingerprints(gap, names, salt, edges)).tolist() == [7]
    assert salt == salt_of(graph) != salt_of(fewer)
    assert not set(names.tolist()) & set(hashed(graph.node_ids, salt_of(fewer)).tolist())
